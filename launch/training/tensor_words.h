// SPDX-License-Identifier: Apache-2.0
// What tensors are, in numbers: how many, and of each its type, its sizes and its name, so that a
// rank that has none of them can make room for those that come. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <vector>

namespace peal::launch {

// Of none it is {0}.
std::vector<std::int64_t> described(const NamedTensors& tensors);
// Such tensors, on the CPU, not filled; of the numbers, what comes after theirs is not read.
NamedTensors like(const std::vector<std::int64_t>& words);

// Collective. `root`'s tensors, on the CPU of every rank; the others' are not read.
NamedTensors broadcast_tensors(const comm::ProcessGroup& group, const NamedTensors& tensors,
                               int root);

}  // namespace peal::launch
