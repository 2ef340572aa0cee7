// SPDX-License-Identifier: Apache-2.0
// Strategies (Lightning: strategy="ddp"; Accelerate: DistributedType): which of the wrappers of
// nn/parallel trains a model, by a word, so that one program has them all. Each gives the result of
// "ddp":
//
//   word    a rank keeps, of N            wrapper                          optimizer
//   none    all; for a world of one       none                             as it is
//   ddp     all                           DistributedDataParallel          as it is
//   zero1   1/N of optimizer state        DistributedDataParallel          shared out
//   zero2   and 1/N of gradients          ShardedDDP                       shared out
//   fsdp    and 1/N of parameters         FullyShardedDataParallel         of this rank's pieces
//
// Of one rank "ddp" is as "none", but for a mixed_precision of its options. Thread safety: pure
// functions.
#pragma once

#include <peal/autograd/core/dtype.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

enum class Strategy : std::uint8_t { none, ddp, zero1, zero2, fsdp };

// Error for another word, that names the nearest of these and all, or, of "dp", "pipeline" and
// "tp", what a program writes here instead; and for "none" of several ranks, which would train
// apart.
Strategy strategy_of(const std::string& word, int world);
std::string_view word_of(Strategy strategy);

// What models compute in: nothing for "no" (or "f32"); "bf16", "fp16" (or "f16"). Error as above.
std::optional<DType> precision_of(const std::string& word);

}  // namespace peal::launch
