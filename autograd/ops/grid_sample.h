// SPDX-License-Identifier: Apache-2.0
// Images read at any places, with PyTorch's semantics: grid_sample reads at those of a grid, and
// affine_grid is the grid of an affine map; together they turn, move, scale and shear (Jaderberg et
// al., "Spatial transformer networks", 2015).
//
//   Tensor turned = grid_sample(image, affine_grid(theta, image.shape()));
//
// A place is (x, y), columns first, from -1 to 1: from one outer edge of an image to the other, or
// with align_corners from the middle of its first element to that of its last. Thread safety: as of
// the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

// What is between elements: of the four around a place, of the nearest one (at the middle the even
// one), or of the sixteen around it (cubic convolution, a = -3/4, as in interpolate.h).
enum class GridMode : std::uint8_t { bilinear, nearest, bicubic };
// What is outside of an image: 0, the element at its edge, or its mirror image at the edges of the
// range that -1 to 1 is, again and again.
enum class GridPadding : std::uint8_t { zeros, border, reflection };

struct GridSampleOptions {
  GridMode mode = GridMode::bilinear;
  GridPadding padding_mode = GridPadding::zeros;
  bool align_corners = false;
};

// x [N, C, H, W] with H and W above 0, and grid [N, h, w, 2] -> [N, C, h, w]. Both have gradients;
// by `nearest` the grid's is 0. At a place that is NaN the result is NaN; so it may be by
// `reflection` at an infinite one, which has no mirror image.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

// theta [N, 2, 3] and the size {N, C, H, W} of what is to be made -> a grid [N, H, W, 2]: of each
// place (x, y) there theta (x, y, 1).
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace peal
