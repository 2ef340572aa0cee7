// SPDX-License-Identifier: Apache-2.0
// Agreement on a set: which of a list any rank has, by one bit each and one small all-reduce.
// Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstddef>
#include <vector>

namespace peal::nn {

// Collective: by number, whether any rank has it. `mine` is as long on all ranks.
std::vector<bool> any_rank(const comm::ProcessGroup& group, const std::vector<bool>& mine,
                           const comm::Label& label);

// The same for who goes on meanwhile: what is sent (by ReduceOp::bor; i64, on the CPU), and what it
// says.
Tensor packed_bits(const std::vector<bool>& list);
std::vector<bool> unpacked_bits(const Tensor& bits, std::size_t size);

}  // namespace peal::nn
