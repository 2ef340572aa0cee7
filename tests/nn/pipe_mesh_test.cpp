// SPDX-License-Identifier: Apache-2.0
// Pipelines beside each other, on shares of a batch: with skips and checkpoints, and of
// shares that are not equal, a step is that of one process.
#include <peal/comm/group/device_mesh.h>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

struct Down : nn::Skippable {
  explicit Down(const std::string& name) : Skippable({.stash = {name}}) {}
  Tensor forward(const Tensor& x) override {
    stash(skips().stash[0], x * 1.5);
    return x;
  }
};
struct Up : nn::Skippable {
  explicit Up(const std::string& name) : Skippable({.pop = {name}}) {}
  Tensor forward(const Tensor& x) override { return x + pop(skips().pop[0]); }
};

nn::Sequential mesh_model() {
  manual_seed(9);
  nn::Sequential net{nn::Linear(5, 6), Down("outer"),    nn::Linear(6, 4), nn::Tanh(),
                     Down("inner"),    nn::Linear(4, 4), Up("inner"),      nn::Linear(4, 6),
                     Up("outer"),      nn::Tanh(),       nn::Linear(6, 2)};
  net.to(DType::f64);
  return net;
}

}  // namespace

TEST_CASE("pipelines on unequal shares of a batch, summed once a step, are one process") {
  const Trained one = trained_alone(mesh_model, 3);
  for (const Kind kind : comm::pipeline::all_kinds) {
    for (const auto mode : {nn::CheckpointMode::never, nn::CheckpointMode::always}) {
      CAPTURE(name(kind));
      CHECK_NOTHROW(ranks(4, [&](const Group& group, int) {
        const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
        nn::Pipe pipe(mesh.get_group("pp"), mesh_model(),
                      {.kind = kind, .micro_batches = 3, .checkpoint = mode, .keep_outputs = true});
        nn::SGD optimizer(pipe.parameters(), sgd);
        const bool first = mesh.get_local_rank("dp") == 0;
        const std::int64_t at = first ? 0 : 7, end = first ? 7 : rows;
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          // One divisor, for the rows of both.
          const double mine =
              pipe.step(input_of(step).rows(at, end), target_of().rows(at, end), squares, rows);
          const Tensor loss = Tensor::scalar(mine, Device{});
          mesh.get_group("dp").all_reduce(loss.view()).wait();
          const double off = std::abs(loss.item<double>() - one.losses[step]);
          PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
          PEAL_CHECK(pipe.outputs(true).size(0) == end - at);
          for (const Tensor& p : pipe.local().parameters()) {
            mesh.get_group("dp").all_reduce(p.grad().view()).wait();
          }
          optimizer.step();
        }
        for (const auto& [name, values] : state_of(pipe.local())) {
          PEAL_CHECK(farthest(values, one.states[2].at(name)) < 1e-10, name);
        }
      }));
    }
  }
}
