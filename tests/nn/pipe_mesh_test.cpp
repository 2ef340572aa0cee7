// SPDX-License-Identifier: Apache-2.0
// Pipelines beside each other, on shares of a batch: with skips and checkpoints, and of
// shares that are not equal, a step is that of one process.
#include <peal/comm/group/device_mesh.h>
#include <peal/nn/parallel/sharded/fsdp.h>

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

TEST_CASE("layers of pipelines that are sharded over the other dimension are one process") {
  const Trained one = trained_alone(uneven_model, 2);
  const auto train = [&](const Group& group, Kind kind, nn::CheckpointMode mode) {
    const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
    const Group& over = mesh.get_group("dp");
    nn::Pipe pipe(mesh.get_group("pp"), uneven_model(),
                  {.kind = kind, .micro_batches = 3, .checkpoint = mode});
    // The pipe calls its layers, so each that has parameters is a unit.
    nn::FullyShardedDataParallel fsdp(pipe.local(), over, {.wrap = nn::wrap_by_type({"Linear"})});
    nn::SGD optimizer(fsdp.local_parameters(), sgd);
    const std::int64_t at = over.rank() * rows / 2;
    for (int step = 0; step < 2; ++step) {
      fsdp.zero_grad();
      const double mine = pipe.step(input_of(step).rows(at, at + rows / 2),
                                    target_of().rows(at, at + rows / 2), squares);
      const Tensor loss = Tensor::scalar(mine, Device{});
      over.all_reduce(loss.view(), comm::ReduceOp::avg).wait();
      const double off = std::abs(loss.item<double>() - one.losses[step]);
      PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
      optimizer.step();
    }
    for (const auto& [name, tensor] : fsdp.state_dict()) {
      const double off = farthest(tensor.to_vector<double>(), one.states[1].at(name));
      PEAL_CHECK(off < 1e-10, name, " is off by ", off);
    }
  };
  for (const Kind kind : comm::pipeline::all_kinds) {
    for (const auto mode : {nn::CheckpointMode::never, nn::CheckpointMode::always}) {
      if (mode == nn::CheckpointMode::always && kind != Kind::one_f_one_b) continue;
      CAPTURE(name(kind));
      CAPTURE(static_cast<int>(mode));
      CHECK_NOTHROW(ranks(4, [&](const Group& group, int) { train(group, kind, mode); }));
    }
  }
  // Parameters of a unit that the pipe does not call never come.
  for (const std::string& error : heard(2, [](const Group&group, int) {
         nn::Pipe pipe(group.split(group.rank()), uneven_model(), {});
         const nn::FullyShardedDataParallel fsdp(pipe.local(), group);
         pipe.step(input_of(0), target_of(), squares);
       })) {
    CHECK(error.find("0.weight, 0.bias, 2.weight") != error.npos);
    CHECK(error.find("are sharded, and not gathered here") != error.npos);
  }
}
