// SPDX-License-Identifier: Apache-2.0
// The entries of CUDA's table of kernels by name, and which of them may still be empty. The tests
// register the table with the empty ones filled by a function that throws MissingEntry, so that an
// op that lacks a kernel is told apart from one that is wrong. Thread safety: constants.
#pragma once

#include <peal/autograd/kernels/table.h>

#include <string>
#include <vector>

namespace peal::test {

struct MissingEntry {
  std::string name;
};

const Kernels& table_with_gaps_named();

// Empty entries of CUDA's table.
const std::vector<std::string>& missing_entries();

// Whoever fills an entry takes its name out; a test holds the list.
inline const std::vector<std::string> may_be_missing = {
    "pointwise",
    "pointwise_backward",
    "compare",
    "where",
    "cast",
    "read_strided",
    "write_strided",
    "index_select",
    "index_add",
    "gather",
    "scatter_add",
    "sum",
    "argmax",
    "argmin",
    "matmul",
    "batched_matmul",
    "softmax",
    "softmax_backward",
    "attention",
    "attention_backward",
    "layer_norm",
    "layer_norm_backward",
    "channel_statistics",
    "batch_norm",
    "batch_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "nll",
    "nll_backward",
    "cross_entropy_backward",
    "pair_loss",
    "pair_loss_backward",
    "conv2d",
    "conv2d_backward",
    "max_pool2d",
    "max_pool2d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
};

}  // namespace peal::test
