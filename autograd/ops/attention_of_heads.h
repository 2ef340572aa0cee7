// SPDX-License-Identifier: Apache-2.0
// Attention of some heads of many (tensor parallelism: the others are other ranks'). Only dropout
// makes a difference: what is dropped is what attention of all heads drops of these.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

// One of equal parts of all heads: the number of its first one, and how many there are in all.
struct HeadsOf {
  std::int64_t first, all;
};

// scaled_dot_product_attention() (attention.h) of `heads` heads. Draws for all. On CUDA, and where
// queries times keys are no multiple of 4, whole scores are made, as is a mask of all heads'. Error
// where they are none of these parts.
Tensor attention_of_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads,
                          bool causal, double dropout, const HeadsOf& place);

}  // namespace peal
