// SPDX-License-Identifier: Apache-2.0
// DDP's options and synchronised batch norm over NCCL's stand-in, where nothing is staged;
// synchronised batch norm in a captured graph; and collectives in the caller's stream, as it has.
#include <peal/comm/start/nccl.h>
#include <peal/tests/gpu/ddp_options.h>
#include <peal/tests/gpu/sync_batch_norm_cases.h>

#include "queued.h"

using namespace peal;
using namespace peal::testing;

namespace {

void over_nccl(const Group& group, Device device) { comm::use_nccl(group, device); }

}  // namespace

TEST_CASE("each option gives over NCCL what it gives on the CPU") {
  for (const OptionsCase& one : options_cases()) check_as_on_cpu(one, over_nccl);
}

TEST_CASE("over NCCL ranks normalise as one on the CPU, whatever their shares are") {
  for (const Shares& shares : {Shares{4, 0, 1}, Shares{5, 1}}) {
    CHECK(worst_on_devices(shares, DType::f32, false, over_nccl) < 2e-5);
    CHECK(worst_on_devices(shares, DType::f64, false, over_nccl) < 1e-12);
  }
}

TEST_CASE("a normalised model under DDP trains over NCCL as on the CPU") {
  check_training_on_devices(over_nccl);
}

TEST_CASE("synchronised batch norm in a captured graph is what it is in calls") {
  for (const Shares& shares : {Shares{4, 0, 1}, Shares{2, 2}}) {
    CHECK(worst_on_devices(shares, DType::f32, true, over_nccl) < 2e-5);
  }
}

TEST_CASE("collectives in the caller's stream come where they are called, over NCCL") {
  for (const int world : {2, 3}) {
    ranks(world, [](const Group& group, int rank) {
      const OnDevice here(rank);
      over_nccl(group, here.device);
      check_in_stream(group, 1000, 4);
      check_in_stream(group.split(rank % 2), 10, 4);
      check_in_stream(group, 10, 4);
    });
  }
}
