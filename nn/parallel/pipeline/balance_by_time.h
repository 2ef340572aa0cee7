// SPDX-License-Identifier: Apache-2.0
// Balance by measured time (torchgpipe: balance_by_time): how many layers each part of a pipeline
// has, by what forward and backward of each layer take here. Thread safety: one thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/layers/sequential.h>

#include <cstdint>
#include <vector>

namespace peal::nn {

// What forward and backward of each layer take, in nanoseconds: the shortest of as many runs of
// `sample`, a micro-batch, through the model as fit into `seconds`, and three at least. Nothing of
// the model changes: no gradient, no running statistics, nor does the thread's generator.
std::vector<std::int64_t> profile_times(const Sequential& model, const Tensor& sample,
                                        double seconds = 1);
// balance_by_size() of these, as rank 0 measures them: the same on all ranks. Collective; Error on
// all where rank 0 has one.
//
//   nn::Pipe pipe(group, net, {.micro_batches = 8,
//                              .balance = nn::balance_by_time(group, net, x.rows(0, 4), 4)});
std::vector<int> balance_by_time(const comm::ProcessGroup& group, const Sequential& model,
                                 const Tensor& sample, int parts, double seconds = 1);

}  // namespace peal::nn
