// SPDX-License-Identifier: Apache-2.0
// Pipe: whatever the schedule, the ranks and the micro-batches, a step is that of one process.
#include <peal/comm/group/device_mesh.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/optim/clip_grad.h>

#include <limits>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

constexpr int most_steps = 20;

const Trained& by_one_process() {
  static const Trained trained = trained_alone(uneven_model, most_steps);
  return trained;
}

void check_like_one_process(const Group& group, const nn::PipeOptions& options, int steps = 2) {
  check_like(by_one_process(), uneven_model, group, options, steps);
}

}  // namespace

TEST_CASE("steps of every schedule are those of one process, at 1 to 4 ranks") {
  int combinations = 0;
  for (const Kind kind : comm::pipeline::all_kinds) {
    for (int world = 1; world <= 4; ++world) {
      for (const int micro_batches : {1, 4, 7}) {
        for (const int chunks : kind == Kind::interleaved ? std::vector{2, 4} : std::vector{0}) {
          CAPTURE(name(kind));
          CAPTURE(world);
          CAPTURE(micro_batches);
          ++combinations;
          CHECK_NOTHROW(ranks(world, [&](const Group& group, int) {
            check_like_one_process(
                group, {.kind = kind, .micro_batches = micro_batches, .chunks = chunks});
          }));
        }
      }
    }
  }
  MESSAGE(combinations, " combinations of schedule, ranks and micro-batches");
}

TEST_CASE("twenty steps of every schedule are those of one process") {
  ranks(3, [](const Group& group, int) {
    for (const Kind kind : comm::pipeline::all_kinds) {
      check_like_one_process(group, {.kind = kind, .micro_batches = 10}, most_steps);
    }
  });
}

TEST_CASE("layers keep their names, and any balance will do") {
  ranks(3, [](const Group& group, int rank) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 3, .balance = {2, 13, 1}});
    const auto named = pipe.local().named_parameters();
    if (rank == 0) PEAL_CHECK(named.size() == 2 && named[1].first == "0.bias");
    if (rank == 1) PEAL_CHECK(named.size() == 14 && named[0].first == "2.weight");
    if (rank == 2) PEAL_CHECK(named.empty());  // a Tanh
    check_like_one_process(group, {.micro_batches = 3, .balance = {2, 13, 1}});
    check_like_one_process(group,
                           {.kind = Kind::zb_v, .micro_batches = 4, .balance = {1, 5, 2, 2, 3, 3}});
  });
}

TEST_CASE("a step has one divisor, and gradients of several steps add up") {
  // Sums 4 over one token and 3 over three are 1.75 a token, not 2.5, the mean of means.
  ranks(2, [](const Group& group, int) {
    nn::Sequential net{nn::Linear(1, 1), nn::Tanh()};
    nn::Pipe pipe(group, net, {.micro_batches = 2});
    const Tensor x = Tensor::zeros({2, 1}), target = Tensor::from(std::vector<float>{4, 3}, {2, 1});
    const auto loss = [](const Tensor& y, const Tensor& t) { return sum(y) * 0.0 + sum(t); };
    const double mean = pipe.step(x, target, loss, 4);
    PEAL_CHECK(mean == 1.75, "got ", mean);
  });
  // Four micro-batches of gradient 1 in two steps: 2, however often a step scales nothing again.
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1}) {
    ranks(2, [kind](const Group& group, int rank) {
      const Tensor weight = full({1, 1}, 1.0);
      nn::Sequential net{nn::Linear(weight), nn::Linear(full({1, 1}, 1.0))};
      nn::Pipe pipe(group, net, {.kind = kind, .micro_batches = 4});
      const auto loss = [](const Tensor& y, const Tensor&) { return sum(y); };
      const Tensor ones = full({4, 1}, 1.0);
      for (int step = 1; step <= 2; ++step) {
        pipe.step(ones, ones, loss);
        const auto grad = pipe.local().parameters()[0].grad().item<float>();
        PEAL_CHECK(grad == static_cast<float>(step), "rank ", rank, ": expected ", step, ", got ",
                   grad);
      }
    });
  }
}

TEST_CASE("frozen layers, and outputs that do not depend on an input") {
  struct Constant : nn::Module {
    Tensor forward(const Tensor& x) override { return full({x.size(0), 3}, 2.0); }
  };
  for (const Kind kind : {Kind::one_f_one_b, Kind::zb_h1}) {
    ranks(3, [kind](const Group& group, int rank) {
      nn::Sequential net{nn::Linear(2, 3), nn::Linear(3, 3), nn::Linear(3, 1)};
      net.requires_grad_("0", false);
      nn::Pipe pipe(group, net, {.kind = kind, .micro_batches = 2});
      const auto loss = [](const Tensor& y, const Tensor&) { return sum(y); };
      const Tensor x = full({4, 2}, 1.0);
      pipe.step(x, x, loss);
      const Tensor grad = pipe.local().parameters()[0].requires_grad()
                              ? pipe.local().parameters()[0].grad()
                              : Tensor();
      PEAL_CHECK(grad.defined() == (rank > 0), "rank ", rank);

      nn::Sequential cut{nn::Linear(2, 3), Constant(), nn::Linear(3, 1)};
      nn::Pipe ends(group, cut, {.kind = kind, .micro_batches = 2});
      ends.step(x, x, loss);
      if (rank == 0) {
        const auto zero = ends.local().parameters()[0].grad().to_vector<float>();
        PEAL_CHECK(std::ranges::all_of(zero, [](float g) { return g == 0; }), "expected zeros");
      }
    });
  }
}

TEST_CASE("what layers draw does not depend on how the model is cut") {
  struct Step {
    double loss = 0;
    std::map<std::string, std::vector<double>> gradients;
    std::uint64_t next = 0;  // of the generator
  };
  const auto net = [] {
    nn::Sequential net = uneven_model();
    for (int i = 0; i < 4; ++i) {
      net.push_back(nn::Linear(2, 2));
      net.push_back(nn::Dropout(0.5));
    }
    net.to(DType::f64);
    return net;
  };
  // The second of two steps, so that the first leaves all ranks alike.
  const auto of = [&](const Group& group, const nn::PipeOptions& options) {
    nn::Pipe pipe(group, net(), options);
    Step last;
    for (int i = 0; i < 2; ++i) {
      last.loss = pipe.step(numbers({rows, 5}, 0.3), numbers({rows, 2}, 0.2), squares);
    }
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      last.gradients[name] = p.grad().to_vector<double>();
    }
    last.next = context().generator.offset;
    return last;
  };
  for (const int micro_batches : {1, 3}) {
    Step one;
    ranks(1, [&](const Group& group, int) { one = of(group, {.micro_batches = micro_batches}); });
    for (const Kind kind : comm::pipeline::all_kinds) {
      for (int world = 1; world <= 4; ++world) {
        ranks(world, [&](const Group& group, int rank) {
          const Step here = of(group, {.kind = kind, .micro_batches = micro_batches});
          PEAL_CHECK(std::abs(here.loss - one.loss) < 1e-10, name(kind), ", ", world,
                     " ranks: loss ", here.loss, ", of one ", one.loss);
          PEAL_CHECK(here.next == one.next, "rank ", rank, " goes on at ", here.next);
          for (const auto& [name, gradient] : here.gradients) {
            PEAL_CHECK(farthest(gradient, one.gradients.at(name)) < 1e-10, name, " is off");
          }
        });
      }
    }
  }
}

TEST_CASE("every layer, micro-batch and step draws numbers of its own, and so does every seed") {
  struct Draws : nn::Module {
    explicit Draws(std::vector<float>& all) : seen(all) {}
    Tensor forward(const Tensor& x) override {
      seen.push_back(rand({1}).item<float>());
      return x * 1.0;
    }
    std::vector<float>& seen;
  };
  std::vector<float> seen;
  ranks(1, [&](const Group& group, int) {
    for (const std::uint64_t seed : {1, 5, 9, 13}) {  // offsets grow by four a step
      manual_seed(seed);
      nn::Sequential net{Draws(seen), nn::Linear(5, 2), Draws(seen), Draws(seen)};
      nn::Pipe pipe(group, net, {.kind = Kind::gpipe, .micro_batches = 3});
      const auto loss = [&](const Tensor& y, const Tensor&) {
        seen.push_back(rand({1}).item<float>());
        return sum(y);
      };
      const Tensor x = Tensor::zeros({3, 5});
      manual_seed(seed);
      for (int step = 0; step < 4; ++step) pipe.step(x, x, loss);
    }
  });
  REQUIRE(seen.size() == std::size_t{4 * 4 * 3 * 4});
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("the loss alone, and a batch of fewer rows than micro-batches") {
  for (const Kind kind : comm::pipeline::all_kinds) {
    ranks(3, [kind](const Group& group, int) {
      nn::Pipe pipe(group, uneven_model(), {.kind = kind, .micro_batches = 4});
      for (const std::int64_t few : {1, 2, 3, 9}) {
        const Tensor x = numbers({few, 5}, 0.3), target = numbers({few, 2}, 0.2);
        nn::Sequential whole = uneven_model();
        const double expected = squares(whole(x), target).item<double>() / static_cast<double>(few);
        PEAL_CHECK(std::abs(pipe.evaluate(x, target, squares) - expected) < 1e-12);
        for (const Tensor& p : pipe.local().parameters()) PEAL_CHECK(!p.grad().defined());
        PEAL_CHECK(std::abs(pipe.step(x, target, squares) - expected) < 1e-12);
        for (Tensor& p : pipe.local().parameters()) p.zero_grad();
      }
    });
  }
}

TEST_CASE("gradients are clipped by the norm of all ranks' layers") {
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    nn::Sequential whole = uneven_model();
    (squares(whole(numbers({rows, 5}, 0.3)), numbers({rows, 2}, 0.2)) * (1.0 / rows)).backward();
    std::map<std::string, std::vector<double>> expected;
    const double norm = nn::clip_grad_norm_(whole.parameters(), 0.01, norm_type).item<double>();
    for (const auto& [name, p] : whole.named_parameters()) {
      expected[name] = p.grad().to_vector<double>();
    }
    ranks(3, [&](const Group& group, int) {
      nn::Pipe pipe(group, uneven_model(), {.kind = Kind::zb_v, .micro_batches = 2});
      pipe.step(numbers({rows, 5}, 0.3), numbers({rows, 2}, 0.2), squares);
      PEAL_CHECK(std::abs(pipe.clip_grad_norm_(0.01, norm_type) - norm) < 1e-10);
      for (const auto& [name, p] : pipe.local().named_parameters()) {
        PEAL_CHECK(farthest(p.grad().to_vector<double>(), expected.at(name)) < 1e-12, name);
      }
    });
  }
}

TEST_CASE("with the group a scaler leaves a step out in all stages, and goes on with one scale") {
  ranks(3, [](const Group& group, int rank) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 4});
    nn::Sequential whole = uneven_model();
    nn::SGD optimizer(pipe.parameters(), sgd), expected(whole.named_parameters(), sgd);
    nn::GradScaler scaler({.init_scale = 8}, group);
    for (const bool infinite : {true, false, false}) {
      optimizer.zero_grad();
      pipe.step(input_of(0), target_of(),
                [&](const Tensor& y, const Tensor& t) { return scaler.scale(squares(y, t)); });
      if (infinite && rank == 1) {
        fill_(pipe.local().parameters()[0].grad(), std::numeric_limits<double>::infinity());
      }
      PEAL_CHECK(scaler.step(optimizer) == !infinite);
      scaler.update();
      PEAL_CHECK(scaler.get_scale() == 4);
      if (infinite) continue;
      expected.zero_grad();
      (squares(whole(input_of(0)), target_of()) * (1.0 / rows)).backward();
      expected.step();
    }
    const State all = state_of(whole);
    for (const auto& [name, values] : state_of(pipe.local())) {
      PEAL_CHECK(farthest(values, all.at(name)) < 1e-10, name);
    }
  });
}

TEST_CASE("a scaler without the group is an Error on a stage, and none on a pipe of one rank") {
  for (const int world : {1, 2}) {
    ranks(world, [&](const Group& group, int) {
      nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
      nn::SGD optimizer(pipe.parameters(), sgd);
      nn::GradScaler scaler({.init_scale = 8});
      pipe.step(input_of(0), target_of(),
                [&](const Tensor& y, const Tensor& t) { return scaler.scale(squares(y, t)); });
      if (world == 1) {
        CHECK(scaler.step(optimizer));
      } else {
        const char* const advice = "give the scaler the group of the Pipe or ShardedDDP";
        CHECK_THROWS_WITH(scaler.unscale_(optimizer), doctest::Contains(advice));
        CHECK_THROWS_WITH(scaler.step(optimizer), doctest::Contains(advice));
      }
    });
  }
}

TEST_CASE("pipelines on shares of a batch, averaged once a step, are one process") {
  ranks(4, [](const Group& group, int) {
    const Trained& one = by_one_process();
    const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
    nn::Pipe pipe(mesh.get_group("pp"), uneven_model(), {.kind = Kind::zb_v, .micro_batches = 2});
    nn::SGD optimizer(pipe.parameters(), sgd);
    const std::int64_t half = rows / 2, at = mesh.get_local_rank("dp") * half;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      pipe.step(numbers({rows, 5}, 0.1 + step).rows(at, at + half),
                numbers({rows, 2}, 0.2).rows(at, at + half), squares);
      for (const Tensor& p : pipe.local().parameters()) {
        mesh.get_group("dp").all_reduce(p.grad().view(), comm::ReduceOp::avg).wait();
      }
      optimizer.step();
    }
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      PEAL_CHECK(farthest(p.to_vector<double>(), one.states[2].at(name)) < 1e-10, name);
    }
  });
}
