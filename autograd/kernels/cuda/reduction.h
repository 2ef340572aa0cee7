// SPDX-License-Identifier: Apache-2.0
// Reduction: where a kernel that reduces some dimensions finds what goes into each result, in how
// many parts it makes it, and by how many threads. Thread safety: a value.
#pragma once

#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/walk.h>

#include <algorithm>
#include <bit>

namespace peal::cuda {

inline constexpr std::int64_t enough_blocks = 1024;  // to fill a large device several times

// Results, and the n elements that go into each: element r of result o is at kept(o) + reduced(r).
struct Reduction {
  Places<1> kept, reduced;
  std::int64_t results, n;
  // Result o is made in parts of `part` elements, numbers o parts, o parts + 1, ...
  std::int64_t parts = 1, part;

  __device__ std::int64_t first(std::int64_t result) const {
    std::int64_t at[1];
    kept.find(result, at);
    return at[0];
  }
  __device__ std::int64_t offset(std::int64_t r) const {
    if (reduced.dims == 1) return r * reduced.step[0][0];
    std::int64_t at[1];
    reduced.find(r, at);
    return at[0];
  }
  void split(std::int64_t wanted, std::int64_t least, std::int64_t multiple) {
    parts = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(n / least, 1));
    part = (n + parts - 1) / parts;
    part = (part + multiple - 1) / multiple * multiple;
    parts = std::max<std::int64_t>((n + part - 1) / part, 1);
  }
};

inline Places<1> places_of(const Shape& shape, std::uint32_t mask, bool masked,
                           std::int64_t* count) {
  Shape sizes;
  Steps steps{};
  std::int64_t step = 1;
  Steps dense{};
  for (int d = shape.dim() - 1; d >= 0; --d) {
    dense[static_cast<std::size_t>(d)] = step;
    step *= shape[d];
  }
  for (int d = 0; d < shape.dim(); ++d) {
    if ((((mask >> d) & 1) != 0) != masked) continue;
    steps[static_cast<std::size_t>(sizes.dim())] = dense[static_cast<std::size_t>(d)];
    sizes.push_back(shape[d]);
  }
  *count = sizes.numel();
  return {sizes, {steps}};
}

inline Reduction reduction_of(const Shape& shape, std::uint32_t mask) {
  std::int64_t results = 0, n = 0;
  const Places<1> kept = places_of(shape, mask, false, &results);
  const Places<1> reduced = places_of(shape, mask, true, &n);
  return {kept, reduced, results, n, 1, n};
}

// How many threads share a result of `work` loads.
inline int threads_for(std::int64_t work) {
  if (work > 1024) return block;
  const auto lanes = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(work / 4, 1)));
  return static_cast<int>(std::min<std::uint64_t>(lanes, warp));
}

}  // namespace peal::cuda
