// SPDX-License-Identifier: Apache-2.0
// Functional collectives (PyTorch: torch.distributed.nn.functional): collectives on the tape, for
// losses that look at the samples of all ranks, as contrastive ones do (CLIP, SimCLR):
//
//   const Tensor all = nn::all_gather(ddp(x), group);  // [world * B, D], rank 0's samples first
//   contrastive_loss(all).backward();
//
// Each rank makes a loss of its own of what it gets, and gradients are those of the sum of the
// ranks' losses:
//
//   function         forward                                backward
//   all_reduce       the sum over the ranks, or average     the same of the gradients
//   all_gather       the ranks' x, along dim                reduce_scatter along dim
//   reduce_scatter   this rank's part of the sum            all_gather along dim
//   all_to_all       part d of dim 0 goes to rank d         all_to_all
//
// DistributedDataParallel over the group then divides by the ranks, as it always does: parameters
// get the gradient of the mean of the ranks' losses, and of one that all ranks compute alike just
// that one's.
//
// Every rank of the group makes the same calls, with tensors of one shape, and goes back through
// them in a backward of the same step; calls that differ are an Error on all ranks, and so are
// ranks that follow without a batch (Join), which have no samples for the others' loss. On one rank
// each is x itself. Gradients of gradients are recorded, too. Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <string_view>

namespace peal::nn {

// `name` is whose the call is, for errors and traces. The shape of x. Error for other reductions
// than sum and avg.
Tensor all_reduce(const Tensor& x, const comm::ProcessGroup& group,
                  comm::ReduceOp op = comm::ReduceOp::sum, std::string_view name = "");
// [.., world * size, ..]. Negative dimensions count from the end, here and below.
Tensor all_gather(const Tensor& x, const comm::ProcessGroup& group, int dim = 0,
                  std::string_view name = "");
// [.., size / world, ..]. Error where the world does not divide the size, here and below.
Tensor reduce_scatter(const Tensor& x, const comm::ProcessGroup& group, int dim = 0,
                      std::string_view name = "");
// x [world * n, ..], as many from each rank.
Tensor all_to_all(const Tensor& x, const comm::ProcessGroup& group, std::string_view name = "");

}  // namespace peal::nn
