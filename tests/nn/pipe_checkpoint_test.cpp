// SPDX-License-Identifier: Apache-2.0
// Checkpointing of a pipe: what is computed anew is what was computed before, and less is kept.
#include <peal/autograd/autocast.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/layers/norm.h>

#include <memory>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;
using nn::CheckpointMode;

namespace {

// With layers that draw, and that count what they see.
nn::Sequential remembering() {
  manual_seed(5);
  nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net.push_back(nn::Linear(i == 0 ? 5 : 6, 6));
    net.push_back(nn::BatchNorm1d(6));
    net.push_back(nn::Dropout(0.4));
  }
  net.push_back(nn::Linear(6, 2));
  return net;
}

struct Seen {
  State state, gradients;
  bool operator==(const Seen&) const = default;
};

Seen after_two_steps(const Group& group, const nn::PipeOptions& options, bool lowers) {
  nn::Pipe pipe(group, remembering(), options);
  const Tensor x = cast(input_of(0), DType::f32), target = cast(target_of(), DType::f32);
  for (int step = 0; step < 2; ++step) {
    std::optional<Autocast> autocast;
    if (lowers) autocast.emplace(DType::bf16);
    pipe.step(x, target, squares);
  }
  Seen seen{state_of(pipe.local()), {}};
  for (const auto& [name, p] : pipe.local().named_parameters()) {
    seen.gradients[name] = cast(p.grad(), DType::f64).to_vector<double>();
  }
  return seen;
}

// How often it runs, and how many of its forwards are remembered at a time.
struct Probe : nn::Module {
  struct Counts {
    int calls = 0, alive = 0, most = 0;
  };
  struct Alive {
    explicit Alive(std::shared_ptr<Counts> of) : counts(std::move(of)) {
      counts->most = std::max(counts->most, ++counts->alive);
    }
    ~Alive() { --counts->alive; }
    Alive(const Alive&) = delete;
    Alive& operator=(const Alive&) = delete;
    const std::shared_ptr<Counts> counts;
  };
  Tensor forward(const Tensor& x) override {
    ++counts->calls;
    return record("probe", x.detach() * 1.0, {x},
                  [alive = std::make_shared<Alive>(counts)](const Tensor& g) { return g * 1.0; });
  }
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
};

}  // namespace

TEST_CASE("steps of every schedule with checkpoints are those of one process") {
  const Trained one = trained_alone(uneven_model, 3);
  for (const auto mode : {CheckpointMode::always, CheckpointMode::except_last}) {
    every_schedule({1, 4, 7}, [&](const Group& group, nn::PipeOptions options) {
      options.checkpoint = mode;
      check_like(one, uneven_model, group, options, 3);
    });
  }
}

TEST_CASE("what layers draw and count is the same, bit by bit, with checkpoints and without") {
  for (const bool lowers : {false, true}) {
    every_schedule({3}, [lowers](const Group& group, nn::PipeOptions options) {
      const Seen never = after_two_steps(group, options, lowers);
      for (const auto mode : {CheckpointMode::always, CheckpointMode::except_last}) {
        options.checkpoint = mode;
        PEAL_CHECK(after_two_steps(group, options, lowers) == never, "lowers ", lowers);
      }
    });
  }
}

TEST_CASE("forwards of a layer, and how many of them are kept") {
  struct Case {
    Kind kind;
    CheckpointMode mode;
    int calls;
    int most;
  };
  constexpr int m = 4;
  // A backward in two does all in its first half.
  for (const auto& [kind, mode, calls, most] :
       {Case{Kind::gpipe, CheckpointMode::never, m, m},
        {Kind::gpipe, CheckpointMode::always, 2 * m, 1},
        {Kind::gpipe, CheckpointMode::except_last, 2 * m - 1, 2},
        {Kind::one_f_one_b, CheckpointMode::never, m, 2},
        {Kind::one_f_one_b, CheckpointMode::always, 2 * m, 1},
        {Kind::zb_h1, CheckpointMode::never, m, 2},
        {Kind::zb_h1, CheckpointMode::always, 2 * m, 1}}) {
    CAPTURE(name(kind));
    CAPTURE(static_cast<int>(mode));
    ranks(2,
          [&, kind = kind, mode = mode, calls = calls, most = most](const Group& group, int rank) {
            const Probe probes[2];
            nn::Sequential net{nn::Linear(2, 2), probes[0], nn::Linear(2, 2), probes[1]};
            nn::Pipe pipe(group, net, {.kind = kind, .micro_batches = m, .checkpoint = mode});
            const Tensor x = full({8, 2}, 1.0);
            pipe.step(x, x, squares);
            const auto& [ran, alive, held] = *probes[rank].counts;
            PEAL_CHECK(ran == calls && alive == 0, "rank ", rank, ": calls ", ran);
            PEAL_CHECK(rank != 0 || held == most, "most ", held);
            PEAL_CHECK(pipe.stash() == stash_bound(pipe.problem(), rank), "stash ", pipe.stash());
            pipe.evaluate(x, x, squares);
            PEAL_CHECK(ran == calls + m, "rank ", rank, ": evaluate() computes once");
          });
  }
}

TEST_CASE("ranks that checkpoint differently are told") {
  CHECK(failure([](const Group& group, int rank) {
          nn::Pipe pipe(
              group, uneven_model(),
              {.checkpoint = rank == 0 ? CheckpointMode::always : CheckpointMode::except_last});
        }).find("checkpoint always' on rank 0") != std::string::npos);
}
