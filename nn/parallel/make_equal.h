// SPDX-License-Identifier: Apache-2.0
// Broadcast of what differs: ranks that are to train one model start from equal values. Digests are
// compared, however large the tensors are, and those alone are sent that differ.
// Thread safety: a collective function, one thread at a time for a group.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace peal::nn {

// Gives memory and values to tensors that have none yet (autograd/core/deferred.h). Where this rank
// cannot, all ranks get the Error "[who] rank R: ...": the others wait for it in a collective.
void make_values(const comm::ProcessGroup& group, const NamedTensors& tensors,
                 std::string_view who);

// Collective. Every rank's tensors become rank 0's; those that have no values yet get theirs first.
// Only those that are not equal already, on all ranks, are written, on all ranks: what was made
// from the others, an optimizer's masters say, stays valid. REQUIRES: tensors of the same names,
// shapes and types on all ranks.
void make_equal(const comm::ProcessGroup& group, const NamedTensors& tensors);

// Of a tensor's bytes, wherever it lies (comm::digest).
std::array<std::uint64_t, 2> digest_of(const Tensor& tensor);
// "\nfc1.weight of digest 12 34", for a text that ranks compare.
std::string digest_line(std::string_view name, const Tensor& tensor);

}  // namespace peal::nn
