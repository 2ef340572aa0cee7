// SPDX-License-Identifier: Apache-2.0
// Mail: sends and receives through slots in shared memory: the messages of a round, as one kernel.
// Each rank has in its window a box for every other one, with two places for parcels. Whoever sends
// fills them in turn and says so; whoever receives empties them and says so in the sender's window.
// With a parcel goes the signature of its call: one of another call is left where it is, and the
// control plane names both calls. A block of threads for each peer and direction: so messages of
// one direction keep their order, crossing ones do not wait for each other, and the kernel ends
// when all have gone. Thread safety: as window.h says.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/comm/transport/cuda_ipc/window.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

struct Letter {
  std::byte* data;
  std::int64_t bytes;
  int peer;
  bool sent;  // else received
};

struct Round {
  static constexpr int most = 64;
  Group group;
  int count;
  Letter letters[most];
};

// Puts the round into the device's current stream.
void pass_mail(Device device, const Round& round);

}  // namespace peal::comm::ipc
