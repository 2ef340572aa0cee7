// SPDX-License-Identifier: Apache-2.0
// Vocabulary-parallel cross entropy (Megatron-LM: vocab_parallel_cross_entropy): of logits of which
// each rank has a part of the classes, as a ColumnParallelLinear without gather_output gives them,
// so that the whole logits are nowhere. P ranks are equal to cross_entropy() of all of them, with
// label smoothing and ignored rows. Two small all-reduces in forward, of a number and of a few a
// row, and none in backward. Thread safety: as of the group.
//
// A vocabulary that the ranks do not divide is padded: a model of 50304 rows is one of 50257 where
// the loss is of `classes` 50257, for the other rows are then in no sum and get no gradient.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <optional>

namespace peal::nn {

// logits [..., C / P], this rank's part of the LAST dimension; target [...] of all C classes, the
// same on all ranks, as is the result: one loss, whose gradient each rank has of its part. f16 and
// bf16 are computed in f32. `classes`: how many of the C there are, the first ones; all where it is
// not given. Error for options with a weight, for batchmean, and for a number of classes that is
// not from 1 to C.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& target,
                                    const comm::ProcessGroup& group,
                                    const CrossEntropyOptions& options = {},
                                    std::optional<std::int64_t> classes = {});

}  // namespace peal::nn
