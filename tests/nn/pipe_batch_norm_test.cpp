// SPDX-License-Identifier: Apache-2.0
// Deferred batch norm: running statistics of whole mini-batches, whatever they are cut into.
#include <peal/nn/layers/norm.h>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

Tensor column(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size()), 1});
}

nn::BatchNorm1d norm_of(std::int64_t channels, const nn::BatchNormSettings& settings) {
  nn::BatchNorm1d norm(channels, settings);
  norm.to(DType::f64);
  return norm;
}

double at(const Tensor& tensor) { return tensor.to_vector<double>()[0]; }

// The first layer sees the batch as it comes.
nn::Sequential plain() {
  manual_seed(7);
  nn::Sequential net{nn::BatchNorm1d(5), nn::Linear(5, 6),
                     nn::Tanh(),         nn::BatchNorm1d(6, {.momentum = std::nullopt}),
                     nn::Linear(6, 6),   nn::Sequential(nn::BatchNorm1d(6), nn::Tanh()),
                     nn::Linear(6, 4),   nn::Linear(4, 2)};
  net.to(DType::f64);
  return net;
}
nn::Sequential deferred() {
  nn::Sequential net = plain();
  nn::convert_deferred_batch_norm(net);
  return net;
}

}  // namespace

TEST_CASE("running statistics move once a mini-batch, by all of it") {
  nn::BatchNorm1d each = norm_of(1, {});
  each(column({0, 2}));
  each(column({4, 6}));
  CHECK(at(each.running_mean) == doctest::Approx(0.59));  // twice, and the second counts more
  nn::DeferredBatchNorm once(norm_of(1, {}));
  once(column({0, 2}));
  CHECK(at(once.running_mean) == 0);
  once(column({4, 6}));
  once.commit();
  CHECK(at(once.running_mean) == doctest::Approx(0.3).epsilon(1e-14));
  CHECK(at(once.running_var) == doctest::Approx(0.9 + 0.1 * 20 / 3).epsilon(1e-14));
  CHECK(once.num_batches_tracked.item<std::int64_t>() == 1);
  once.commit();  // of nothing
  CHECK(at(once.running_mean) == doctest::Approx(0.3).epsilon(1e-14));
}

TEST_CASE("deferred batch norm of micro-batches has the statistics of BatchNorm of the whole") {
  for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
    for (const bool affine : {true, false}) {
      const nn::BatchNormSettings settings{.momentum = momentum, .affine = affine};
      nn::BatchNorm1d whole = norm_of(3, settings);
      nn::DeferredBatchNorm cut(norm_of(3, settings));
      for (int step = 0; step < 3; ++step) {
        const Tensor x = numbers({10, 3, 2}, 1 + step) + 1000.0;
        whole(x);
        const auto blocks = comm::Blocks::balanced(10, 4);
        for (int i = 0; i < 4; ++i) {
          const Tensor part = x.rows(blocks[i].at, blocks[i].at + blocks[i].count);
          nn::BatchNorm1d alone = norm_of(3, settings);
          CHECK(cut(part).to_vector<double>() == alone(part).to_vector<double>());
        }
        cut.commit();
      }
      for (const auto& [name, values] : state_of(whole)) {
        CHECK_MESSAGE(farthest(state_of(cut).at(name), values) < 1e-9, name);
      }
      whole.eval();
      cut.eval();
      const Tensor x = numbers({4, 3, 2}, 3);
      CHECK(farthest(cut(x).to_vector<double>(), whole(x).to_vector<double>()) < 1e-10);
    }
  }
}

TEST_CASE("a pipe's running statistics are those of the mini-batch, in every schedule") {
  const Trained whole = trained_alone(plain, 1);
  for (const auto mode : {nn::CheckpointMode::never, nn::CheckpointMode::always}) {
    for (const int m : {1, 4}) {
      const Trained one = trained_alone(deferred, 3, m, nn::commit_batch_norm);
      for (const char* name : {"0.running_mean", "0.running_var", "3.num_batches_tracked"}) {
        CHECK(farthest(one.states[0].at(name), whole.states[0].at(name)) < 1e-12);
      }
      every_schedule({m}, [&](const Group& group, nn::PipeOptions options) {
        options.deferred_batch_norm = true;
        options.checkpoint = mode;
        if (comm::pipeline::make_problem(options.kind, group.world(), m).parts() > 8) return;
        check_like(one, plain, group, options, 3);
      });
    }
  }
}

TEST_CASE("statistics of what is no step are in none") {
  const nn::PipeOptions options{.micro_batches = 3, .deferred_batch_norm = true};
  const auto after = [&](const Group& group, bool more) {
    nn::Sequential net = deferred();
    nn::Pipe pipe(group, net, options);
    if (more) {
      const std::vector<std::int64_t> times = nn::profile_times(net, input_of(3), 0);
      pipe.local().train();
      PEAL_CHECK(!times.empty(), "no times");
    }
    pipe.step(input_of(0), target_of(), squares);
    return state_of(pipe.local());
  };
  ranks(2, [&](const Group& group, int) {
    PEAL_CHECK(after(group, true) == after(group, false), "other statistics");
  });
}

TEST_CASE("evaluate() of layers that train moves them, and of others does not") {
  ranks(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, plain(), {.micro_batches = 4, .deferred_batch_norm = true});
    const State before = state_of(pipe.local());
    nn::Sequential local = pipe.local();
    local.eval();
    pipe.evaluate(input_of(0), target_of(), squares);
    PEAL_CHECK(state_of(pipe.local()) == before, "rank ", rank);
    local.train();
    pipe.evaluate(input_of(0), target_of(), squares);
    const char* const count = rank == 0 ? "0.num_batches_tracked" : "5.0.num_batches_tracked";
    PEAL_CHECK(state_of(pipe.local()).at(count) == std::vector<double>{1}, "rank ", rank);
  });
}

TEST_CASE("what cannot be converted, and what is left alone") {
  struct Own : nn::BatchNorm1d {
    Own() : BatchNorm1d(3) {}
  };
  nn::Sequential derived{nn::Sequential(Own()), nn::Tanh()};
  CHECK_THROWS_WITH_AS(nn::convert_deferred_batch_norm(derived),
                       doctest::Contains("convert_deferred_batch_norm: 0.0 is a "), Error);
  nn::BatchNorm1d hooked(3);
  hooked.add_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y; });
  nn::Sequential with_hooks{hooked};
  CHECK_THROWS_WITH_AS(nn::convert_deferred_batch_norm(with_hooks),
                       doctest::Contains("0 has hooks"), Error);
  nn::Sequential twice = deferred();
  const nn::Module first = twice.child("0");
  nn::convert_deferred_batch_norm(twice);
  CHECK(twice.child("0").same_as(first));
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, nn::Sequential(Own(), nn::Tanh()), {.deferred_batch_norm = true});
        }).find("convert_deferred_batch_norm: 0 is a ") != std::string::npos);
}
