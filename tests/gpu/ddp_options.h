// SPDX-License-Identifier: Apache-2.0
// Options of DDP, each as a case that two ranks train by, on a device or on the CPU: what the tests
// of both compare. Numbers are dyadic and short, so that sums are the same bits in any order.
#pragma once

#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/tests/comm/on_rank.h>
#include <peal/tests/nn/ddp_ranks.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::testing {

struct OptionsCase {
  std::string name;
  nn::DDPOptions options{};
  std::function<nn::CommHook(const Group&)> hook{};
  double lr = 0.0625;               // 0: parameters stay, for hooks whose results are not short
  std::array<double, 2> samples{};  // of the ranks; none: they are not counted
  bool join = false;                // rank 0 has a batch less
  bool over_actives = false;        // what Join divides by
  bool skips = false;               // rank 1 leaves a part of the model out
  int backwards = 1;                // of a step, of which the last communicates
  double tolerance = 0;
};

inline std::vector<OptionsCase> options_cases() {
  using Made = std::function<nn::CommHook(const Group&)>;
  const Made power = [](const Group& group) {
    return nn::PowerSGD(group, {.start_powerSGD_iter = 1, .min_compression_rate = 0.5}).hook();
  };
  const Made noop = [](const Group&) { return nn::noop_hook(); };
  const Made local = [](const Group& group) {
    return nn::post_localSGD_hook({group, {}, {.start_localSGD_iter = 2}});
  };
  const nn::MixedPrecision bf16{.param_dtype = DType::bf16};
  const nn::MixedPrecision kept{
      .param_dtype = DType::bf16, .buffer_dtype = DType::f16, .keep_low_precision_grads = true};
  return {
      {.name = "average"},
      {.name = "three backwards", .backwards = 3},
      {.name = "find_unused", .options = {.find_unused_parameters = true}, .skips = true},
      {.name = "find_unused, no_sync",
       .options = {.find_unused_parameters = true},
       .skips = true,
       .backwards = 2},
      {.name = "static_graph", .options = {.static_graph = true}, .skips = true},
      {.name = "fp16", .hook = nn::fp16_compress_hook},
      {.name = "bf16", .hook = nn::bf16_compress_hook},
      {.name = "int8", .hook = nn::int8_compress_hook, .lr = 0},
      {.name = "PowerSGD", .hook = power, .tolerance = 1e-4},
      {.name = "noop", .hook = noop},
      {.name = "post-local SGD", .hook = local},
      {.name = "mixed bf16", .options = {.mixed_precision = bf16}},
      {.name = "mixed bf16, kept", .options = {.mixed_precision = kept}},
      {.name = "samples 1 and 3", .samples = {1, 3}},
      {.name = "samples 1 and 99", .lr = 0, .samples = {1, 99}, .backwards = 2},
      {.name = "samples 1 and 99, bf16",
       .hook = nn::bf16_compress_hook,
       .lr = 0,
       .samples = {1, 99}},
      {.name = "join", .join = true},
      {.name = "join over actives", .join = true, .over_actives = true},
      {.name = "join, samples, find_unused",
       .options = {.find_unused_parameters = true},
       .samples = {1, 3},
       .join = true,
       .skips = true},
      {.name = "check_every", .options = {.check_every = 1}},
  };
}

// Small whole numbers, wherever the model lies.
inline void write_whole(const nn::Module& model) {
  const NoGrad guard;
  for (const Tensor& p : model.parameters()) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < p.numel(); ++i)
      values.push_back(static_cast<float>(i * 5 % 7 - 3));
    p.copy_(Tensor::from(values, p.shape(), Device{}).to(p.device()));
  }
}

struct OptionsNet : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 4)), out = add("out", nn::Linear(4, 2)),
             extra = add("extra", nn::Linear(4, 2));
  Tensor seen = add_buffer("seen", Tensor::zeros({}, DType::f32, Device{}));
  // x [2, 3] -> [2, 2]
  Tensor pick(const Tensor& x, bool whole) {
    const Tensor h = relu(in(x));
    if (training()) add_(seen, cast(sum(x.detach()), seen.dtype()));
    return whole ? out(h) + extra(h) : out(h);
  }
};

// What this rank sees in three steps: gradients of each step (NaN where there is none), parameters
// and buffers at the end.
inline std::vector<double> train_by(const OptionsCase& one, const Group& group, Device device) {
  constexpr int steps = 3;
  const int rank = group.rank();
  OptionsNet net;
  net.to(device);
  write_whole(net);
  nn::DDPOptions options = one.options;
  options.buckets = {.first_bytes = 16, .bytes = 64};
  if (one.name == "PowerSGD") options.order = start_order(net);  // its factors are of one plan
  DDP ddp(net, group, options);
  if (one.hook) ddp.register_comm_hook(one.hook(group));
  nn::SGD optimizer(ddp.parameters(), {.lr = one.lr});
  std::optional<nn::Join> join;
  if (one.join) join.emplace(ddp, nn::JoinOptions{!one.over_actives});
  std::vector<double> all;
  const auto note = [&](const Tensor& tensor) {
    const auto values = cast(tensor.detach().to(Device{}), DType::f64).to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  };
  for (int step = 0; step < steps; ++step) {
    const bool has_batch = !one.join || rank == 1 || step < steps - 1;
    if (join) REQUIRE(join->next(has_batch));
    optimizer.zero_grad();
    // Left out by one rank, by both, by none; the same in each step where that is wanted.
    const bool by_turns = step == 2 || (step == 0 && rank == 0);
    const bool whole = !one.skips || (one.options.static_graph ? rank == 0 : by_turns);
    for (int k = 0; k < one.backwards && has_batch; ++k) {
      std::vector<float> numbers;
      for (int i = 0; i < 6; ++i) {
        numbers.push_back(static_cast<float>((rank * 3 + step * 2 + k + i * 5) % 7 - 2));
      }
      const Tensor x = Tensor::from(numbers, {2, 3}, Device{}).to(device);
      const Tensor slope = Tensor::from<float>({1, -2, 3, 1}, {2, 2}, Device{}).to(device);
      const auto backward = [&] {
        const Tensor loss = sum(cast(ddp.call(&OptionsNet::pick, x, whole), DType::f32) * slope);
        const double samples = one.samples[static_cast<std::size_t>(rank)];
        samples > 0 ? ddp.backward(loss, samples) : loss.backward();
      };
      if (k + 1 == one.backwards) {
        backward();
      } else {
        const auto guard = ddp.no_sync();
        backward();
      }
    }
    if (!has_batch) REQUIRE(join->follow());
    for (const Tensor& p : ddp.parameters()) {
      const Tensor grad = p.grad();
      if (grad.defined()) {
        CHECK(grad.device() == device);
        note(grad);
      } else {
        all.insert(all.end(), static_cast<std::size_t>(p.numel()),
                   std::numeric_limits<double>::quiet_NaN());
      }
    }
    optimizer.step();
  }
  if (join) REQUIRE_FALSE(join->next(false));
  for (const Tensor& p : ddp.parameters()) note(p);
  note(net.seen);
  return all;
}

// By rank. `prepare` is called on each rank, where they are on devices.
inline std::vector<std::vector<double>> train_two(
    const OptionsCase& one, bool on_devices,
    const std::function<void(const Group&, Device)>& prepare = [](const Group&, Device) {}) {
  std::vector<std::vector<double>> all(2);
  two([&](const Group& group, int rank) {
    auto& mine = all[static_cast<std::size_t>(rank)];
    if (!on_devices) {
      mine = train_by(one, group, Device{});
      return;
    }
    const OnDevice here(rank);
    prepare(group, here.device);
    mine = train_by(one, group, here.device);
  });
  return all;
}

// Both ranks' numbers are those of the CPU.
inline void check_as_on_cpu(
    const OptionsCase& one,
    const std::function<void(const Group&, Device)>& prepare = [](const Group&, Device) {}) {
  CAPTURE(one.name);
  const auto expected = train_two(one, false), got = train_two(one, true, prepare);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    REQUIRE(got[rank].size() == expected[rank].size());
    int off = 0, numbers = 0;
    for (std::size_t i = 0; i < got[rank].size(); ++i) {
      const double a = got[rank][i], b = expected[rank][i];
      const bool neither = std::isnan(a) && std::isnan(b);
      if (!neither && !(std::abs(a - b) <= one.tolerance)) ++off;
      if (b == b && b != 0) ++numbers;
    }
    CHECK(off == 0);
    CHECK(numbers > 60);
  }
}

}  // namespace peal::testing
