// SPDX-License-Identifier: Apache-2.0
// Max pooling over windows at random places (Graham, "Fractional max-pooling", 2014): the sizes of
// the result need not divide the image's. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>
#include <peal/autograd/ops/reduce.h>

#include <array>
#include <optional>

namespace peal {

// Either the result's height and width, or what they are of the image's, between 0 and 1.
struct FractionalMaxPool2dOptions {
  std::optional<Pair> output_size{};
  std::optional<std::array<double, 2>> output_ratio{};
  Tensor random_samples{};  // [N, C, 2] in [0, 1): of width and height; drawn where undefined
};

// x [N, C, H, W] or [C, H, W] -> the largest of each window of the kernel's size, NaN wins; and its
// index among the H W of its plane, i64. Windows of one plane begin at steps of two lengths that
// come in random order, the last one ends at the border. Error unless H >= H' + kernel - 1, and so
// for W. The windows are copied.
Tensor fractional_max_pool2d(const Tensor& x, Pair kernel,
                             const FractionalMaxPool2dOptions& options);
Extreme fractional_max_pool2d_with_indices(const Tensor& x, Pair kernel,
                                           const FractionalMaxPool2dOptions& options);

}  // namespace peal
