// SPDX-License-Identifier: Apache-2.0
// The sizes that kernels with windows, heads or classes take beside their tensors: plain values,
// checked by the op that makes them.
#pragma once

#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/shape.h>
#include <peal/autograd/core/tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace peal {

// For each dimension of a result, the step in elements of an operand; 0 where it is stretched.
using Steps = std::array<std::int64_t, Shape::max_dims>;

// A shape as [outer, size, inner] around one dimension.
struct Around {
  std::int64_t outer = 1, size, inner = 1;
  Around(const Shape& shape, int dim) : size(shape[dim]) {
    for (int i = 0; i < dim; ++i) outer *= shape[i];
    for (int i = dim + 1; i < shape.dim(); ++i) inner *= shape[i];
  }
};

struct Conv2dGeometry {
  std::int64_t batch, in_channels, in_height, in_width;
  std::int64_t out_channels, out_height, out_width, kernel_height, kernel_width;
  std::array<std::int64_t, 2> stride, padding;
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;  // a weight has in_channels / groups channels
  bool operator==(const Conv2dGeometry&) const = default;
};

struct Pool2dGeometry {
  std::int64_t planes, in_height, in_width, out_height, out_width;
  std::array<std::int64_t, 2> kernel, stride;
  std::array<std::int64_t, 2> padding{0, 0}, dilation{1, 1};
  // Every window lies in the plane, and its cells side by side.
  bool plain() const {
    return padding == std::array<std::int64_t, 2>{0, 0} &&
           dilation == std::array<std::int64_t, 2>{1, 1} &&
           (out_height - 1) * stride[0] + kernel[0] <= in_height &&
           (out_width - 1) * stride[1] + kernel[1] <= in_width;
  }
};

// Windows of an average: with fixed sizes, or (adaptive) the output's share of the input, from
// floor(i in / out) to ceil((i + 1) in / out).
struct AveragePool2d {
  std::int64_t planes, in_height, in_width, out_height, out_width;
  bool adaptive;
  std::array<std::int64_t, 2> kernel, stride, padding;  // not where adaptive
  bool counts_padding;
};

// Images read at places (ops/grid_sample.h, whose names and order these are).
enum class GridTaps : std::uint8_t { bilinear, nearest, bicubic };
enum class GridEdge : std::uint8_t { zeros, border, reflection };
struct GridGeometry {
  std::int64_t batch, channels, in_height, in_width, out_height, out_width;
  GridTaps taps;
  GridEdge edge;
  bool align_corners;
  // Elements that a place is made of.
  std::int64_t elements() const {
    return taps == GridTaps::nearest ? 1 : taps == GridTaps::bilinear ? 4 : 16;
  }
};

// Each two of so many rows, once: of 0 and 1, 0 and 2, ...
struct RowPairs {
  std::int64_t rows, width;
  std::int64_t count() const { return rows * (rows - 1) / 2; }
};

struct ClassTargets {
  std::int64_t ignored;  // rows of this target have loss 0
  double smoothing;
  // On a device, of a mean: where it has written how many rows count, by which gradients are
  // divided; else null.
  const double* counted = nullptr;
};

// What a step of a recurrent layer makes of what the input brings and of the state before.
enum class RecurrentCell : std::uint8_t { lstm, gru, tanh, relu };

// One direction of a recurrent layer over a sequence. Its states are [steps + 1, batch, hidden]:
// that which it begins from lies at the end where it begins.
struct RecurrentGeometry {
  RecurrentCell cell;
  std::int64_t steps, batch, hidden;
  bool reverse = false;  // from the last step to the first

  std::int64_t gates() const {
    return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
  }
  // The i-th step that is made; and where the states before and after step t lie.
  std::int64_t step(std::int64_t i) const { return reverse ? steps - 1 - i : i; }
  std::int64_t before(std::int64_t t) const { return reverse ? t + 1 : t; }
  std::int64_t after(std::int64_t t) const { return reverse ? t : t + 1; }
};

struct AttentionGeometry {
  std::int64_t batch, queries, keys, heads, width;  // width: of one head
  bool causal;
};

// What attention makes, and reads again in backward.
struct AttentionResult {
  Tensor y;
  // The probabilities [B, heads, T, S] in y's type, of which backward needs no y; or of each query
  // numbers that it makes them from again, [n, B heads, T] in the type they are computed in.
  Tensor kept;
};

// What of attention is other than its geometry says.
struct AttentionChanges {
  // Undefined; of bool, where true is seen; or in the type that scores are computed in: added to
  // them. A query's numbers lie side by side.
  Tensor mask{};
  std::vector<std::int64_t> heads{};  // where each head's begins in it, [B, heads]
  std::int64_t row = 0;               // from a query's to the next's; 0: one for all
  // Dropout: share i of [B, heads, T, S] is kept, times `factor`, where word i >= threshold.
  RandomRange words{};
  std::uint32_t threshold = 0;
  double factor = 1;
  bool drops() const { return threshold != 0; }
  bool any() const { return mask.defined() || drops(); }
};

}  // namespace peal
