// SPDX-License-Identifier: Apache-2.0
// A Learner that is told a device, with a model and loaders of the CPU.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/loss.h>

#include <cstdint>
#include <memory>
#include <vector>

using namespace peal;

namespace {

struct Devices : launch::Callback {
  int order() const override { return 70; }
  void after_loss(launch::Loop& loop) override {
    for (const Tensor& each : {loop.batch.x, loop.batch.y, loop.output}) {
      seen.push_back(each.device());
    }
  }
  std::vector<Device> seen;
};

}  // namespace

TEST_CASE("a Learner's device has its model and its batches, also before the first fit") {
  const Device device{DeviceType::cuda, 0};
  launch::Job job;
  manual_seed(3);
  nn::Linear net(2, 3);
  const auto set = std::make_shared<data::TensorDataset>(
      randn({8, 2}),
      Tensor::from(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 1}, {8}, Device{}));
  data::DataLoader training(set, {.batch_size = 4}), validation(set, {.batch_size = 3});
  launch::Learner learner(job, {&training, &validation}, net,
                          {.loss = nn::CrossEntropyLoss{}, .device = "cuda"});
  const auto devices = std::make_shared<Devices>();
  learner.callbacks.push_back(devices);
  const auto check = [&](std::size_t batches) {
    CHECK(devices->seen == std::vector<Device>(3 * batches, device));
    CHECK(net.weight.device() == device);
    devices->seen.clear();
  };
  learner.validate();
  check(3);
  learner.fit(1);
  check(2 + 3);
  learner.validate();
  check(3);
}
