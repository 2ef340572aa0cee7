// SPDX-License-Identifier: Apache-2.0
// Synchronised batch norm on devices, over the CPU's transport, is batch norm over the whole batch
// on the CPU: outputs, gradients and running statistics, uneven and empty shares included. On a GPU
// and on the host.
#include "sync_batch_norm_cases.h"

#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::testing;

TEST_CASE("ranks on devices normalise as one on the CPU, whatever their shares are") {
  for (const Shares& shares : {Shares{4, 0, 1}, Shares{2, 2, 2}, Shares{5, 1}, Shares{1, 1}}) {
    for (const auto& [dtype, bound] : {std::pair(DType::f32, 2e-5), std::pair(DType::f64, 1e-12)}) {
      CAPTURE(shares.size());
      CHECK(worst_on_devices(shares, dtype) < bound);
    }
  }
}

TEST_CASE("a normalised model under DDP trains on devices as on the CPU") {
  check_training_on_devices();
}

TEST_CASE("one value a channel is an Error on devices too, on every rank, and named") {
  ranks(3, [](const Group& group, int rank) {
    const OnDevice here(rank);
    nn::SyncBatchNorm norm(channels, group);
    norm.to(here.device);
    const auto forward = [&](const Shape& shape) {
      return error_of([&] { norm(full(shape, rank, DType::f32, here.device)); });
    };
    const std::int64_t own = rank == 1 ? 1 : 0;
    check_has(forward({own, channels}),
              "SyncBatchNorm: expected more than one value a channel to train with, got 1 in 3");
    check_has(forward({0, channels}), "got 0 in 3");
    for (const float value : norm.running_var.to_vector<float>()) CHECK(value == 1);
    // One each is enough, and so is one of which each channel has two.
    CHECK(forward({1, channels}) == "nothing");
    CHECK(forward({own, channels, 2}) == "nothing");
    for (const float value : norm.running_var.to_vector<float>()) CHECK(value == value);
  });
}
