// SPDX-License-Identifier: Apache-2.0
// Passes over contiguous arrays of n elements, 16 bytes of the widest at a time: In<T>, Out<T> and
// InOut<T> say which arrays are read and written, and walk(on, n, f, arrays...) calls f(i, element
// of each array...), written ones by reference. Where all arrays begin equally far before a
// boundary of 16 bytes, the elements before it and those after the last one go one by one, else all
// do. An array may be In and Out at once. A functor that has a type TakesPacks gets whole packs
// instead, as pack(i, packs...).
#pragma once

#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/functors.h>

#include <cstdint>

namespace peal::cuda {

// f in the type that T is computed in: a functor of elements.
template <class T, class F>
struct Computing {
  F f;
  template <class... E>
  __device__ T operator()(E... elements) const {
    return static_cast<T>(f(static_cast<functor::computed<E>>(elements)...));
  }
};

// out = f(elements...), as a functor for walk().
template <class F>
struct Assigning {
  F f;
  template <class T, class... E>
  __device__ void operator()(std::int64_t, T& out, const E&... elements) const {
    out = f(elements...);
  }
};

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <class T>
struct In {
  using Element = T;
  static constexpr bool reads = true, writes = false;
  T* data;
  __host__ __device__ In(const T* data) : data(const_cast<T*>(data)) {}
};
template <class T>
struct Out {
  using Element = T;
  static constexpr bool reads = false, writes = true;
  T* data;
};
template <class T>
struct InOut {
  using Element = T;
  static constexpr bool reads = true, writes = true;
  T* data;
};

// N elements of one array, on their way through a thread.
template <class Array, int N>
struct Cell {
  using T = typename Array::Element;
  Pack<T, N> pack;
  Pack<T, N>* place;
  __device__ Cell(const Array& array, std::int64_t at)
      : place(reinterpret_cast<Pack<T, N>*>(array.data + at)) {
    if constexpr (Array::reads) pack = *place;
  }
  __device__ void store() const {
    if constexpr (Array::writes) *place = pack;
  }
};

template <class F>
concept takes_packs = requires {
  typename F::TakesPacks;
};

template <int N, class F, class... Cells>
__device__ void run_cells(std::int64_t at, const F& f, Cells... cells) {
  if constexpr (takes_packs<F>) {
    f.pack(at, cells.pack...);
  } else {
    for (int k = 0; k < N; ++k) f(at + k, cells.pack.at[k]...);
  }
  (cells.store(), ...);
}

// Elements [head, head + N packs) in packs, the others one by one.
template <int N, class F, class... Arrays>
__global__ void walk_kernel(std::int64_t n, std::int64_t head, std::int64_t packs, F f,
                            Arrays... arrays) {
  for (std::int64_t i = thread_number(); i < packs; i += thread_count()) {
    const std::int64_t at = head + i * N;
    run_cells<N>(at, f, Cell<Arrays, N>(arrays, at)...);
  }
  const std::int64_t single = n - packs * N;
  for (std::int64_t i = thread_number(); i < single; i += thread_count()) {
    const std::int64_t at = i < head ? i : i + packs * N;
    run_cells<1>(at, f, Cell<Arrays, 1>(arrays, at)...);
  }
}

// The elements before the first boundary of N of them; -1 where none is aligned to them.
template <class T, int N>
std::int64_t elements_before(const T* data) {
  const auto past = reinterpret_cast<std::uintptr_t>(data) % (N * sizeof(T));
  if (past % sizeof(T) != 0) return -1;
  return past == 0 ? 0 : static_cast<std::int64_t>(N - past / sizeof(T));
}

template <class T>
constexpr int pack_size = static_cast<int>(16 / sizeof(T));

template <class F, class First, class... Arrays>
void walk(On on, std::int64_t n, const F& f, First first, Arrays... arrays) {
  if (n == 0) return;
  using T = typename First::Element;
  constexpr int N =
      static_cast<int>(16 / std::max({sizeof(T), sizeof(typename Arrays::Element)...}));
  std::int64_t head = elements_before<T, N>(first.data), packs = 0;
  const bool alike =
      ((elements_before<typename Arrays::Element, N>(arrays.data) == head) && ... && true);
  if (head >= 0 && alike && n >= head + N) {
    packs = (n - head) / N;
  } else {
    head = 0;
  }
  launch(on, blocks_for(std::max(packs, n - packs * N)), block, walk_kernel<N, F, First, Arrays...>,
         n, head, packs, f, first, arrays...);
}

}  // namespace peal::cuda
