// SPDX-License-Identifier: Apache-2.0
// Kernels over many tensors at once: a launch takes some sixty of them, as pointers among its
// parameters, in chunks of a fixed size, a block each. So a step of an optimizer over hundreds of
// small tensors is a few launches, and nothing waits. Thread safety: as of a launch.
#pragma once

#include <peal/autograd/kernels/cuda/walk.h>

#include <algorithm>
#include <array>
#include <utility>

namespace peal::cuda {

inline constexpr int list_length = 60;  // so that the parameters stay below 4 KB
inline constexpr std::int64_t chunk = 8192;

// K arrays for each tensor; those of a tensor are equally long.
template <int K>
struct List {
  int count = 0;
  bool packed[list_length];                   // all arrays are aligned to packs
  std::int32_t first_block[list_length + 1];  // ascending; the last is how many there are
  std::int64_t size[list_length];
  void* at[list_length][K];

  __device__ int tensor_of(int number) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_block[middle] <= number) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

template <class Array>
__device__ Array array_of(void* data) {
  return Array{static_cast<typename Array::Element*>(data)};
}

// f over the elements of the block's chunk, as walk.h has it.
template <int N, class F, class... Arrays>
__device__ void walk_chunk(std::int64_t begin, std::int64_t end, bool packed, const F& f,
                           const Arrays&... arrays) {
  std::int64_t single = begin;
  if (packed) {
    single = begin + (end - begin) / N * N;
    for (std::int64_t at = begin + static_cast<int>(threadIdx.x) * N; at < single;
         at += block * N) {
      run_cells<N>(at, f, Cell<Arrays, N>(arrays, at)...);
    }
  }
  for (std::int64_t at = single + static_cast<int>(threadIdx.x); at < end; at += block) {
    run_cells<1>(at, f, Cell<Arrays, 1>(arrays, at)...);
  }
}

template <int N, class F, std::size_t... K, class... Arrays>
__device__ void walk_list_block(const List<sizeof...(K)>& list, const F& f,
                                std::index_sequence<K...>, const Arrays*...) {
  const int number = static_cast<int>(blockIdx.x), tensor = list.tensor_of(number);
  const std::int64_t begin = (number - list.first_block[tensor]) * chunk, size = list.size[tensor];
  const std::int64_t end = begin + chunk < size ? begin + chunk : size;
  walk_chunk<N>(begin, end, list.packed[tensor], f, array_of<Arrays>(list.at[tensor][K])...);
}

// A functor whose numbers are those of each replay, in a captured graph: where they lie then.
template <class F>
struct Live {
  F f;
  const F* replayed;  // null outside of graphs
};

template <class F>
__device__ F now(const F& f) {
  return f;
}
template <class F>
__device__ F now(const Live<F>& live) {
  return live.replayed != nullptr ? *live.replayed : live.f;
}

template <int N, class F, class... Arrays>
__global__ void walk_list_kernel(List<sizeof...(Arrays)> list, F f) {
  walk_list_block<N>(list, now(f), std::index_sequence_for<Arrays...>(),
                     static_cast<const Arrays*>(nullptr)...);
}

// Goes over n tensors in lists of as many as fit: take(list) for each. arrays(i) gives tensor i's
// addresses; `bytes` are their elements' sizes.
template <int K, class Arrays, class Take>
void in_lists(std::size_t n, const std::array<std::size_t, K>& bytes, Arrays&& arrays,
              Take&& take) {
  const std::size_t widest = *std::max_element(bytes.begin(), bytes.end());
  List<K> list{};
  const auto flush = [&] {
    if (list.count > 0) take(list);
    list.count = 0;
  };
  for (std::size_t i = 0; i < n; ++i) {
    const auto [size, at] = arrays(i);
    if (size == 0) continue;
    const std::int64_t blocks = (size + chunk - 1) / chunk;
    if (list.count == list_length ||
        (list.count > 0 && list.first_block[list.count] + blocks > (std::int64_t{1} << 30))) {
      flush();
    }
    const int here = list.count++;
    list.first_block[0] = 0;
    list.first_block[here + 1] = static_cast<std::int32_t>(list.first_block[here] + blocks);
    list.size[here] = size;
    list.packed[here] = true;
    for (std::size_t k = 0; k < K; ++k) {
      list.at[here][k] = at[k];
      const bool aligned = reinterpret_cast<std::uintptr_t>(at[k]) % (16 / widest * bytes[k]) == 0;
      list.packed[here] = list.packed[here] && aligned;
    }
  }
  flush();
}

// f(i, element of each array...) over all elements of n tensors. Arrays... are kinds (In<T>, ...).
template <class... Arrays, class F, class Addresses>
void walk_list(On on, std::size_t n, const F& f, Addresses&& addresses) {
  constexpr int N = static_cast<int>(16 / std::max({sizeof(typename Arrays::Element)...}));
  constexpr int K = sizeof...(Arrays);
  in_lists<K>(n, {sizeof(typename Arrays::Element)...}, addresses, [&](const List<K>& list) {
    launch(on, list.first_block[list.count], block, walk_list_kernel<N, F, Arrays...>, list, f);
  });
}

}  // namespace peal::cuda
