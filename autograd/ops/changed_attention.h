// SPDX-License-Identifier: Apache-2.0
// Attention with a mask and dropout inside one op, on devices that have it (kernels/table.h): whole
// scores are not made, unless its gradient is to be differentiated in turn. Thread safety: as of
// ops.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/geometry.h>

#include <string_view>

namespace peal {

// Whether the device drops shares with probability p inside the op; 0 is no dropout.
bool drops_inside(Device device, double p);
// What else changes, and dropout of the scores' shares, which draws.
AttentionChanges with_dropout(AttentionChanges changes, const Shape& scores, double p);

// Tensors as of `o`. scores: the shape that the mask stretches to, [B, heads, T, S] or what has
// these elements. REQUIRES: changes without any(), or a device that has changed_attention.
Tensor changed_attention(std::string_view op, const AttentionGeometry& o,
                         const AttentionChanges& changes, const Shape& scores, const Tensor& q,
                         const Tensor& k, const Tensor& v);

}  // namespace peal
