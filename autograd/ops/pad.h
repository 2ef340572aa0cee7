// SPDX-License-Identifier: Apache-2.0
// Padding, and elements in other places: channels to pixels and back, channels among groups.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <vector>

namespace peal {

// constant: a number; reflect: the inner elements backwards, without the edge; replicate: the edge
// again; circular: from the other end.
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };

// pads: how many elements before and after, of the last dimension, then of the one before it, and
// so on, as in PyTorch: {left, right, top, bottom}. Negative numbers, of a constant alone, cut off.
// Of a reflection less than the size, of a circle at most the size. `value` is the constant.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pads, PadMode mode = PadMode::constant,
           double value = 0);
// The same for ops that read it alone: x itself, or a view of it, where nothing is added.
Tensor padded(const Tensor& x, const std::vector<std::int64_t>& pads,
              PadMode mode = PadMode::constant, double value = 0);

// [..., C r^2, H, W] -> [..., C, H r, W r], and back (Shi et al., "Real-time single image and video
// super-resolution using an efficient sub-pixel convolutional neural network", 2016).
Tensor pixel_shuffle(const Tensor& x, std::int64_t factor);
Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor);
// Of x [N, C, ...]: channel i of group g becomes channel g of group i (Zhang et al., "ShuffleNet",
// 2018).
Tensor channel_shuffle(const Tensor& x, std::int64_t groups);

}  // namespace peal
