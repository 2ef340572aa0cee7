// SPDX-License-Identifier: Apache-2.0
// Device-side interpreter: a kernel that walks a flat program (flat_program.h): each block is a
// worker, and does the program's steps for its strip, in its own rooms, with its own signals
// (window.h). So a collective is one kernel, and asks nothing of the host.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/schedule/flat_program.h>
#include <peal/comm/transport/cuda_ipc/window.h>

#include <cstddef>

namespace peal::comm::ipc {

// One run of it. All of it is the kernel's argument, so a captured one can be replayed; arguments
// of 4096 bytes go everywhere. REQUIRES: several ranks meet in it, for a block counts its
// operations.
struct Run {
  Group group;
  const std::byte* in;
  std::byte* out;
  // Where those lie, and of the segments that they lie in what this rank sees of each rank's part;
  // only where the program asks.
  Lie lie;
  std::byte *ins[most_ranks], *outs[most_ranks];
  double factor;  // premul_sum
  ReduceOp op;
  int element;  // bytes
  FlatProgram program;
};
static_assert(sizeof(Run) <= 4096);

// Puts it into the device's current stream. `blocks` is equal on all ranks.
void run_program(Device device, int blocks, DType dtype, const Run& run);

}  // namespace peal::comm::ipc
