// SPDX-License-Identifier: Apache-2.0
// Other sizes of sequences [N, C, L], images [N, C, H, W] and volumes [N, C, D, H, W], by PyTorch's
// rules, which differ where sizes are not whole multiples. Each element of a result is made of a
// few of the input along one dimension after the other. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

namespace peal {

// nearest: the element at floor(i scale); nearest_exact: at that of the middle. linear, bilinear
// and trilinear: of the two next to each other, in 1, 2 or 3 dimensions. bicubic: of four (Keys,
// "Cubic convolution interpolation for digital image processing", 1981, a = -3/4). area: means of
// shares (adaptive_pool.h).
enum class InterpolateMode : std::uint8_t {
  nearest,
  nearest_exact,
  linear,
  bilinear,
  trilinear,
  bicubic,
  area
};

// One number for all dimensions behind the channels, or one for each; or none.
template <class T>
struct PerDimension {
  PerDimension() = default;
  template <class Number>
  requires(std::integral<Number> || (std::floating_point<T> && std::floating_point<Number>))
      PerDimension(Number all)  // NOLINT: meant as a conversion
      : values{static_cast<T>(all)}, one(true) {}
  PerDimension(std::initializer_list<T> each) : values(each) {}
  explicit operator bool() const { return !values.empty(); }
  T at(std::size_t d) const { return one ? values[0] : values[d]; }

  std::vector<T> values{};
  bool one = false;
};

struct InterpolateOptions {
  PerDimension<std::int64_t> size{};  // this or
  PerDimension<double> scale_factor{};
  InterpolateMode mode = InterpolateMode::nearest;
  // Whether the first and last elements stay where they are, rather than the outer edges of the
  // first and last; of linear to bicubic alone.
  std::optional<bool> align_corners{};
  // Whether places are counted by the sizes, where they are by scale_factor.
  std::optional<bool> recompute_scale_factor{};
  // Of bilinear and bicubic: where it gets smaller, of all that is there. An element with a weight
  // of 0 is not looked at.
  bool antialias = false;
};

Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// The sizes that it has behind the channels; an Error that says what does not fit.
std::vector<std::int64_t> interpolated_sizes(const Shape& x, const InterpolateOptions& options);

}  // namespace peal
