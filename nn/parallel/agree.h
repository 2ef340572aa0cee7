// SPDX-License-Identifier: Apache-2.0
// Agreement at start-up: ranks that are to train one model compare what they have, and start from
// equal values. What is compared is small (a digest), however large the model is; the whole is sent
// only where it differs.
// Thread safety: collective functions, one thread at a time for a group.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace peal::nn {

// 16 bytes that differ where the bytes do, but for one case in 2^128 or so. Not for adversaries.
using Digest = std::array<std::uint64_t, 2>;
Digest digest(std::span<const std::byte> bytes);
// Of the elements, wherever they lie.
Digest digest(const Tensor& tensor);

// Collective. Error, the same on all ranks, where texts differ: it shows the first line that does.
// `what` is what they describe: "the models".
void check_same(const comm::ProcessGroup& group, const std::string& what, const std::string& text);

// Collective. Every rank's tensors become rank 0's. Only those that are not equal already, on all
// ranks, are written, on all ranks: what was made from the others, an optimizer's masters say,
// stays valid. REQUIRES: tensors of the same names, shapes and types on all ranks.
void make_equal(const comm::ProcessGroup& group, const NamedTensors& tensors);

}  // namespace peal::nn
