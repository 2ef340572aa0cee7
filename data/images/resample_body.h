// SPDX-License-Identifier: Apache-2.0
// The kernels of resample_kernels.h, in the namespace PEAL_LEVEL. This file is compiled with
// several instruction sets, so nothing in it may have a linker symbol that another file shares (a
// test looks at the symbols).
#include <peal/data/images/resample_kernels.h>

namespace peal::data::PEAL_LEVEL {
namespace {

// A pixel in four lanes, of which the last is of its neighbour and goes unused.
using Bytes4 = std::uint8_t __attribute__((vector_size(4)));
using Lanes4 = std::int32_t __attribute__((vector_size(16)));

[[gnu::always_inline]] inline Lanes4 lanes_of(const std::uint8_t* at) {
  Bytes4 bytes;
  __builtin_memcpy(&bytes, at, 4);
  return __builtin_convertvector(bytes, Lanes4);
}
[[gnu::always_inline]] inline Lanes4 last_lanes_of(const std::uint8_t* at) {
  return Lanes4{at[0], at[1], at[2], 0};
}

[[gnu::always_inline]] inline std::uint8_t byte_of(std::int32_t sum) {
  const std::int32_t value = sum >> weight_bits;
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// So many rows at once, which share the weights.
template <int rows>
[[gnu::always_inline]] inline void across_rows(const std::uint8_t* from, std::int64_t from_stride,
                                               const Taps& taps, std::uint8_t* to) {
  constexpr std::int32_t half = 1 << (weight_bits - 1);
  for (std::int64_t i = 0; i < taps.size; ++i) {
    const std::int32_t* weight = taps.weight + i * taps.most;
    const std::uint8_t* at = from + 3 * std::int64_t{taps.first[i]};
    Lanes4 sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = Lanes4{half, half, half, half};
    for (std::int64_t k = 0; k < taps.count[i]; ++k, at += 3) {
      for (int r = 0; r < rows; ++r) sum[r] += lanes_of(at + r * from_stride) * weight[k];
    }
    for (int r = 0; r < rows; ++r) {
      std::uint8_t* pixel = to + (r * taps.size + i) * 3;
      for (int c = 0; c < 3; ++c) pixel[c] = byte_of(sum[r][c]);
    }
  }
}

void across(const std::uint8_t* from, std::int64_t from_stride, std::int64_t rows,
            const std::uint8_t* end, const Taps& taps, std::uint8_t* to) {
  std::int64_t y = 0;
  const std::int64_t to_stride = 3 * taps.size;
  for (; y + 5 <= rows; y += 4) {  // never the last row, whose last pixel may end at `end`
    across_rows<4>(from + y * from_stride, from_stride, taps, to + y * to_stride);
  }
  for (; y < rows; ++y) {
    const std::uint8_t* row = from + y * from_stride;
    for (std::int64_t i = 0; i < taps.size; ++i) {
      const std::int32_t* weight = taps.weight + i * taps.most;
      const std::uint8_t* at = row + 3 * std::int64_t{taps.first[i]};
      constexpr std::int32_t half = 1 << (weight_bits - 1);
      Lanes4 sum{half, half, half, half};
      for (std::int64_t k = 0; k < taps.count[i]; ++k, at += 3) {
        sum += (at + 4 <= end ? lanes_of(at) : last_lanes_of(at)) * weight[k];
      }
      std::uint8_t* pixel = to + y * to_stride + 3 * i;
      for (int c = 0; c < 3; ++c) pixel[c] = byte_of(sum[c]);
    }
  }
}

void down(const std::uint8_t* from, std::int64_t stride, const Taps& taps, std::uint8_t* to) {
  constexpr std::int64_t together = 64;
  constexpr std::int32_t half = 1 << (weight_bits - 1);
  for (std::int64_t y = 0; y < taps.size; ++y, to += stride) {
    const std::uint8_t* first = from + taps.first[y] * stride;
    const std::int32_t* weight = taps.weight + y * taps.most;
    const std::int64_t count = taps.count[y];
    std::int64_t x = 0;
    for (; x + together <= stride; x += together) {
      std::int32_t sum[together];
      for (std::int64_t j = 0; j < together; ++j) sum[j] = half;
      for (std::int64_t k = 0; k < count; ++k) {
        const std::uint8_t* row = first + k * stride + x;
        for (std::int64_t j = 0; j < together; ++j) sum[j] += row[j] * weight[k];
      }
      for (std::int64_t j = 0; j < together; ++j) to[x + j] = byte_of(sum[j]);
    }
    for (; x < stride; ++x) {
      std::int32_t sum = half;
      for (std::int64_t k = 0; k < count; ++k) sum += first[k * stride + x] * weight[k];
      to[x] = byte_of(sum);
    }
  }
}

}  // namespace

ResampleKernels resample_kernels() { return {across, down}; }

}  // namespace peal::data::PEAL_LEVEL
