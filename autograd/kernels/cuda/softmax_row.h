// SPDX-License-Identifier: Apache-2.0
// Softmax of one row by the threads of a warp or of a block, which call it together. Rows of up to
// `kept` elements a thread stay in registers and are read once; longer ones are read twice, the
// first time with a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018). A row that is -infinity throughout becomes NaN, as in PyTorch.
#pragma once

#include <peal/autograd/kernels/cuda/block.h>

#include <cmath>
#include <limits>

namespace peal::cuda {

// store(i, softmax of load(0) ... load(width - 1)) for all i, or its logarithm. load gives float or
// double. `thread` counts within `threads`, which is warp or the whole block.
template <int threads, int kept, bool logarithm, class Load, class Store>
__device__ void softmax_row(std::int64_t width, int thread, const Load& load, const Store& store) {
  using C = decltype(load(0));
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  C largest = lowest, total = 0;
  if (width <= static_cast<std::int64_t>(kept) * threads) {
    C element[kept];
    for (int k = 0; k < kept; ++k) {
      const std::int64_t i = thread + k * threads;
      element[k] = i < width ? load(i) : lowest;
      largest = Larger{}(largest, element[k]);
    }
    largest = group_reduce(largest, Larger{}, lowest, threads);
    for (int k = 0; k < kept; ++k) {
      if (thread + k * threads >= width) continue;
      element[k] -= largest;
      const C power = std::exp(element[k]);
      total += power;
      if constexpr (!logarithm) element[k] = power;
    }
    total = group_reduce(total, Plus{}, C(0), threads);
    // In two steps: the sum of a large maximum and a small logarithm would lose the latter.
    const C last = logarithm ? std::log(total) : C(1) / total;
    for (int k = 0; k < kept; ++k) {
      const std::int64_t i = thread + k * threads;
      if (i < width) store(i, logarithm ? element[k] - last : element[k] * last);
    }
    return;
  }
  for (std::int64_t i = thread; i < width; i += threads) {
    const C x = load(i);
    if (x > largest) {
      total = total * std::exp(largest - x) + C(1);
      largest = x;
    } else {
      total += x == largest ? C(1) : std::exp(x - largest);
    }
  }
  const C mine = largest;
  largest = group_reduce(largest, Larger{}, lowest, threads);
  total = group_reduce(total * std::exp(mine - largest), Plus{}, C(0), threads);
  const C last = logarithm ? std::log(total) : C(1) / total;
  for (std::int64_t i = thread; i < width; i += threads) {
    const C shifted = load(i) - largest;
    store(i, logarithm ? shifted - last : std::exp(shifted) * last);
  }
}

}  // namespace peal::cuda
