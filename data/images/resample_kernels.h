// SPDX-License-Identifier: Apache-2.0
// The two passes of a resize, each a weighted sum of neighbours in fixed point: weights of 22 bits
// after the point, sums of 32 bits, rounded half up and cut to a byte. So every level of vector
// instructions gives the same bytes, which are PIL's. Thread safety: pure.
#pragma once

#include <cstdint>

namespace peal::data {

inline constexpr int weight_bits = 22;

// Output i is the sum over k < count[i] of input first[i] + k times weight[i * most + k].
struct Taps {
  const std::int32_t* first = nullptr;
  const std::int32_t* count = nullptr;
  const std::int32_t* weight = nullptr;
  std::int64_t size = 0, most = 0;
};

struct ResampleKernels {
  // Along rows: of each of `rows` rows of pixels of three bytes, `from_stride` bytes apart, to
  // rows of taps.size pixels. Reads nothing beyond `end`.
  void (*across)(const std::uint8_t* from, std::int64_t from_stride, std::int64_t rows,
                 const std::uint8_t* end, const Taps& taps, std::uint8_t* to);
  // Across rows of `stride` bytes: taps.size rows of as many.
  void (*down)(const std::uint8_t* from, std::int64_t stride, const Taps& taps, std::uint8_t* to);
};

// Of the current level.
ResampleKernels resample_kernels();

}  // namespace peal::data
