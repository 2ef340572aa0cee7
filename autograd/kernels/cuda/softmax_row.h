// SPDX-License-Identifier: Apache-2.0
// Softmax of one row, and the two numbers that it is made with, by the threads of a warp or of a
// block, which call it together. Rows of up to `kept` elements a thread stay in registers and are
// read once; longer ones are read twice, the first time with a running maximum and sum (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). A row that is -infinity
// throughout becomes NaN, as in PyTorch.
#pragma once

#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace peal::cuda {

// Rows up to here are a warp's, longer ones a block's.
inline constexpr std::int64_t softmax_warp_width = 1024;

// run<threads>(rows, width, blocks) for the rows of x.
template <class Run>
void over_rows(const Tensor& x, Run&& run) {
  const std::int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  const auto blocks = [&](int threads) {
    const std::int64_t here = block / threads;
    return std::min<std::int64_t>((rows + here - 1) / here, std::int64_t{1} << 20);
  };
  if (width <= softmax_warp_width) return run.template operator()<warp>(rows, width, blocks(warp));
  run.template operator()<block>(rows, width, blocks(block));
}

// Elements of x in the type that they are computed in.
template <class T>
struct RowElements {
  const T* x;
  __device__ functor::computed<T> operator()(std::int64_t i) const {
    return static_cast<functor::computed<T>>(x[i]);
  }
};

// Of a row: its largest element, and the sum of exp(element - largest).
template <class C>
struct RowSum {
  C largest, total;
};

template <int threads, class C, class Load>
__device__ RowSum<C> row_sum(std::int64_t width, int thread, const Load& load) {
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  C largest = lowest, total = 0;
  constexpr int at_once = 8;  // elements on their way, and for one new maximum
  for (std::int64_t i = thread; i < width; i += at_once * threads) {
    C x[at_once], most = lowest;
    for (int k = 0; k < at_once; ++k) {
      x[k] = i + k * threads < width ? load(i + k * threads) : lowest;
      most = Larger{}(most, x[k]);
    }
    if (most > largest) {
      total *= std::exp(largest - most);
      largest = most;
    }
    // What is beside the row adds 0, or something to a sum that a first maximum makes 0.
    for (int k = 0; k < at_once; ++k) total += x[k] == largest ? C(1) : std::exp(x[k] - largest);
  }
  const C mine = largest;
  largest = group_reduce(largest, Larger{}, lowest, threads);
  return {largest, group_reduce(total * std::exp(mine - largest), Plus{}, C(0), threads)};
}

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
  const RowSum<C> of = row_sum<threads, C>(width, thread, load);
  const C last = logarithm ? std::log(of.total) : C(1) / of.total;
  for (std::int64_t i = thread; i < width; i += threads) {
    const C shifted = load(i) - of.largest;
    store(i, logarithm ? shifted - last : std::exp(shifted) * last);
  }
}

}  // namespace peal::cuda
