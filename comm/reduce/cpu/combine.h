// SPDX-License-Identifier: Apache-2.0
// Fused reduction: any number of arrays become one, and the result goes to any number of places, in
// one pass. Combining n arrays in pairs reads and writes a running sum n - 1 times, and copying it
// out reads it again; here all elements of one place meet in registers, so memory sees each source
// read once and each target written once, the least that there can be. It is what all-reduce in
// shared memory consists of: rank i combines slice i of everybody's buffer into everybody's buffer.
//
// f16 and bf16 are widened to f32 in registers and rounded once, at the store, to nearest with ties
// to even: however many sources there are, the result is as good as one rounding allows, and it is
// the same in all targets. The order is that of the sources, so the bits depend neither on how an
// array is cut into pieces nor on the CPU's vector level. An average divides the sum in the same
// registers, before it is rounded.
//
// Streaming stores go round the caches: a line that is written whole is then not read before, which
// of two sources and two targets saves a third of the traffic. That is so where the targets are not
// sources themselves (those are read anyway, and nothing is saved) and all is larger than the
// caches, or nobody reads it soon; whoever does finds it in memory. It takes targets that lie alike
// in their lines of 64 bytes: one that lies otherwise than the first gets ordinary stores, as all
// do below 1 KiB.
// Thread safety: pure but for the targets.
#pragma once

#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace peal::comm {

// Every target[k] = sources[0][k] (op) sources[1][k] (op) ..., from left to right, for k < count;
// avg and premul_sum add. avg then divides by `divisor`, truncating for integers. Of one source,
// divided by 1: a copy. A target and a source are equal or disjoint, and need no alignment.
// `streaming`: as above, ordered before what the calling thread stores next. Error for a type the
// op does not have. REQUIRES: a source; divisor > 0, and 1 for all but avg.
void combine(DType dtype, ReduceOp op, std::span<std::byte* const> targets,
             std::span<const std::byte* const> sources, std::int64_t count, bool streaming,
             std::int64_t divisor = 1);

// At a given level, for the tests. REQUIRES: level <= best_level().
void combine(cpu::Level level, DType dtype, ReduceOp op, std::span<std::byte* const> targets,
             std::span<const std::byte* const> sources, std::int64_t count, bool streaming,
             std::int64_t divisor = 1);

}  // namespace peal::comm
