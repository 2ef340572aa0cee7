// SPDX-License-Identifier: Apache-2.0
// FSDP of models on devices, whose pieces are there or in the host's memory: the same numbers, and
// what is where. On a GPU and on the host.
#include <peal/autograd/core/stream.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/tests/folder.h>

#include <doctest/doctest.h>

#include <vector>

using namespace peal;
using FSDP = nn::FullyShardedDataParallel;

namespace {

// Two layers in whole numbers, without biases: all sums are exact.
struct Whole : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 5, false));
  nn::Linear out = add("out", nn::Linear(5, 2, false));
  Whole() {
    double next = 0;
    for (const Tensor& each : parameters()) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < each.numel(); ++i, ++next) {
        values.push_back(static_cast<float>(static_cast<int>(next * 5) % 7 - 3));
      }
      each.detach().copy_(Tensor::from(values, each.shape(), Device{}));
    }
  }
  Tensor forward(const Tensor& x) override { return out(in(x)); }
};

Tensor rows_of(int step, int micro, int rank, Device device) {
  std::vector<float> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(static_cast<float>((i * 3 + step + micro + rank) % 5 - 2));
  }
  return Tensor::from(rows, {2, 3}, device);
}

// What one process makes of all ranks' rows.
std::vector<std::vector<float>> alone(int world) {
  Whole net;
  nn::SGD optimizer(net.named_parameters(), {.lr = 0.25, .momentum = 0.5});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      for (int rank = 0; rank < world; ++rank) {
        (sum(net(rows_of(step, micro, rank, Device{}))) * (1.0 / world)).backward();
      }
    }
    optimizer.step();
  }
  return {net.in.weight.to_vector<float>(), net.out.weight.to_vector<float>()};
}

// The state after some steps, each of two backwards, the first without communication or not.
std::vector<std::vector<float>> trained(const comm::ProcessGroup& group, Device device,
                                        bool offload, bool no_sync) {
  Whole net;
  net.to(device);
  FSDP fsdp(net, group,
            {.wrap = nn::wrap_by_type({"Linear"}), .cpu_offload = {.offload_params = offload}});
  nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.25, .momentum = 0.5});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      const auto backward = [&] {
        sum(fsdp(rows_of(step, micro, group.rank(), device))).backward();
      };
      if (no_sync && micro == 0) {
        const auto guard = fsdp.no_sync();
        backward();
      } else {
        backward();
      }
    }
    for (const auto& [name, piece] : fsdp.local_parameters()) {
      CHECK(piece.device() == (offload ? Device{} : device));
      CHECK(piece.grad().device() == piece.device());
    }
    optimizer.step();
  }
  std::vector<std::vector<float>> all;
  for (const NamedTensors& state : {fsdp.state_dict(), fsdp.optimizer_state_dict(optimizer)}) {
    for (const auto& [name, tensor] : state) {
      if (tensor.dtype() == DType::f32) all.push_back(tensor.to_vector<float>());
    }
  }
  return all;
}

Device device_of(const comm::ProcessGroup& group) {
  return {DeviceType::cuda, group.rank() % device_count(DeviceType::cuda)};
}

}  // namespace

TEST_CASE("pieces in the host's memory train as those on the device do, accumulating too") {
  for (const int world : {1, 2}) {  // averages are exact
    comm::run_ranks(world, [](const comm::ProcessGroup& group) {
      const StreamGuard own(Stream::create(device_of(group)));
      for (const bool no_sync : {false, true}) {
        const auto on_cpu = trained(group, {}, false, no_sync);
        const auto expected = alone(group.world());
        CHECK(on_cpu[0] == expected[0]);
        CHECK(on_cpu[1] == expected[1]);
        CHECK(trained(group, device_of(group), false, no_sync) == on_cpu);
        CHECK(trained(group, device_of(group), true, no_sync) == on_cpu);
        CHECK(trained(group, {}, true, no_sync) == on_cpu);  // there already
      }
    });
  }
}

TEST_CASE("a device has no pieces of a model that is offloaded, and clips and loads as without") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    const Device device = device_of(group);
    const StreamGuard own(Stream::create(device));
    manual_seed(4);
    nn::Sequential net = [] {
      const auto empty = nn::init_empty_weights();
      return nn::Sequential(nn::Linear(64, 64), nn::Linear(64, 64));
    }();
    net.to(device);
    CHECK(nn::empty_parameters(net).size() == 4);
    FSDP fsdp(net, group, {.wrap = nn::wrap_by_type({"Linear"}), .cpu_offload = {true}});
    manual_seed(4);
    nn::Sequential there(nn::Linear(64, 64), nn::Linear(64, 64));
    const NamedTensors expected = there.state_dict();
    NamedTensors state = fsdp.state_dict();
    for (std::size_t i = 0; i < state.size(); ++i) {
      CHECK(state[i].second.device() == device);
      CHECK(state[i].second.to_vector<float>() == expected[i].second.to_vector<float>());
    }
    CHECK(net.parameters()[0].device() == device);
    sum(fsdp(ones({2, 64}, DType::f32, device))).backward();
    CHECK(fsdp.clip_grad_norm_(1.0) > 1.0);
    {
      const auto whole = fsdp.summon_full_parameters();
      const NoGrad guard;
      net.parameters()[0].zero_();
    }
    for (float value : fsdp.local_parameters()[0].second.to_vector<float>()) CHECK(value == 0);
    fsdp.load_state_dict(expected);
    state = fsdp.state_dict();
    CHECK(state[0].second.to_vector<float>() == expected[0].second.to_vector<float>());
  });
}
