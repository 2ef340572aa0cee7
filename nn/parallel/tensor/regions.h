// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel regions (Megatron-LM: mappings.py; Shoeybi et al., "Megatron-LM", 2019, section
// 3; Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022,
// section 4.2): the pairs of collectives by which a tensor goes from where all ranks of a group
// have it alike to where each has a part, and back. Each is a function on the tape, and its
// gradient is the other of its pair:
//
//   function                   forward                      backward
//   copy_to                    identity                     all_reduce
//   reduce_from                all_reduce                   identity
//   scatter_to                 this rank's part of dim      all_gather along dim
//   gather_from                all_gather along dim         this rank's part of dim
//   all_gather_sequence        all_gather along dim         reduce_scatter along dim
//   reduce_scatter_sequence    reduce_scatter along dim     all_gather along dim
//
// gather_from and all_gather_sequence differ in who follows: after the first all ranks compute the
// same, so that each has the whole gradient; after the second each computes something of its own,
// and the gradients add up. So a loss of what gather_from gives is one loss, which all ranks have.
//
// Every rank of the group makes the same calls, and a backward of them is in the tape's order,
// which is the same on all. Calls by another name, and other sizes, are an Error on all ranks that
// says whose they are. On one rank each is x itself. Gradients of gradients are recorded, too.
// Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <string_view>

namespace peal::nn {

// `name` is whose the call is, for errors and traces. REQUIRES of copy_to and scatter_to: x is the
// same on all ranks.
Tensor copy_to_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                      std::string_view name = "");
Tensor reduce_from_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                          std::string_view name = "");
// Negative dimensions count from the end. Error where the world does not divide the size.
Tensor scatter_to_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                         int dim = -1, std::string_view name = "");
Tensor gather_from_tensor_parallel_region(const Tensor& x, const comm::ProcessGroup& group,
                                          int dim = -1, std::string_view name = "");

// The dimension of the sequence is 1: x [B, T, width].
Tensor all_gather_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim = 1,
                           std::string_view name = "");
Tensor reduce_scatter_sequence(const Tensor& x, const comm::ProcessGroup& group, int dim = 1,
                               std::string_view name = "");

// Without the tape: the ranks' x, one behind the other along dim.
Tensor all_gathered(const Tensor& x, const comm::ProcessGroup& group, int dim,
                    std::string_view name);

}  // namespace peal::nn
