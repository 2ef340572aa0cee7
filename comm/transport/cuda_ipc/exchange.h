// SPDX-License-Identifier: Apache-2.0
// Exchange: one-sided gets after a barrier, which all collectives are here. Every rank lays the
// parts of its input that others want into its room, ranks meet, and each takes what it wants out
// of the others' rooms: copied by source, or reduced over all ranks in the order of ranks, in f32
// for f16 and bf16, and rounded once. So all ranks get the same bits.
//
//   all_gather, gather, broadcast, barrier   one part for everybody, copied
//   all_to_all, scatter                      a part for each rank, copied
//   all_reduce (one-shot), reduce            one part for everybody, reduced
//   reduce_scatter                           a part for each rank, reduced
//   all_reduce (two-shot)                    a part for each rank, reduced and pushed: whoever has
//                                            reduced a part writes it to where everybody has it
//
// One-shot moves each rank's n bytes to the p-1 others with one meeting; two-shot 2n(p-1)/p bytes
// with two. Where tensors lie in memory that all ranks reach (segment.h), two-shot works on them in
// place, without the rooms. Messages longer than a block's half go in turns. The names, and
// where one gives way to the other, are those of vLLM's custom all-reduce.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/transport/cuda_ipc/room.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

// A part of a buffer, bytes.
struct Part {
  std::int64_t at, bytes;
};

struct Exchange {
  Group group;
  const std::byte* in;
  std::byte* out;
  int slots;               // 1 part for everybody, or one for each rank
  Part laid[most_ranks];   // by slot, of `in`; empty where this rank has none
  Part taken[most_ranks];  // by source, of `out`; of a reduction the first
  std::int64_t longest;    // bytes of the longest part between any two ranks; equal on all
};

struct Reduction {
  ReduceOp op;
  DType dtype;
  double factor;  // premul_sum
  bool takes;     // this rank wants the result
  // Two-shot: the part goes to all. Its tensors lie in the segment whose beginning each rank sees
  // at `segments` (by rank), at this place; place.segment is 0 where not.
  bool pushes;
  Place place;
  std::byte* segments[most_ranks];
};

// How many blocks the kernel has: equal on all ranks. Bytes of the longest part.
int blocks_for(std::int64_t longest, int most);

// Puts the exchange into the device's current stream.
void copy_exchange(Device device, const Exchange& exchange);
void reduce_exchange(Device device, const Exchange& exchange, const Reduction& reduction);

}  // namespace peal::comm::ipc
