// SPDX-License-Identifier: Apache-2.0
// broadcast(on, f, out, operands...): out[i] = f(element of each operand...), where operands
// broadcast to out. Operands of out's shape go the way of walk.h. Else, where rows allow it, a
// thread makes 16 bytes of a row, whose place in the operands is worked out once.
#pragma once

#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/walk.h>

#include <utility>

namespace peal::cuda {

// An operand and which it is.
template <class T, int K>
struct Operand {
  static constexpr int number = K;
  const T* data;
  // N elements of a row, which begin at `at`: side by side, or one again and again.
  template <int N, class Found>
  __device__ Pack<T, N> read(const Found& at, std::int64_t step) const {
    const T* place = data + at[K];
    if (step != 0) return *reinterpret_cast<const Pack<T, N>*>(place);
    Pack<T, N> pack;
    for (int k = 0; k < N; ++k) pack.at[k] = *place;
    return pack;
  }
};

template <int N, class F, class T, class... Packs>
__device__ void broadcast_pack(const F& f, T* out, const Packs&... packs) {
  Pack<T, N> result;
  for (int k = 0; k < N; ++k) result.at[k] = f(packs.at[k]...);
  *reinterpret_cast<Pack<T, N>*>(out) = result;
}

template <int N, class F, class T, class... Operands>
__global__ void broadcast_kernel(std::int64_t n, bool packed, F f, T* out,
                                 Places<sizeof...(Operands)> places, Operands... operands) {
  std::int64_t at[sizeof...(Operands)];
  if (packed) {
    for (std::int64_t i = thread_number(); i < n / N; i += thread_count()) {
      places.find(i * N, at);
      broadcast_pack<N>(f, out + i * N,
                        operands.template read<N>(at, places.row_step(operands.number))...);
    }
  } else {
    for (std::int64_t i = thread_number(); i < n; i += thread_count()) {
      places.find(i, at);
      out[i] = f(operands.template read<1>(at, 1).at[0]...);
    }
  }
}

template <class T, class... E, class F, std::size_t... K, class... Inputs>
void broadcast_over(On on, const F& f, const Tensor& out, std::index_sequence<K...>,
                    const Inputs&... inputs) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  T* to = pointer<T>(out);
  if (((inputs.shape() == out.shape()) && ...)) {
    return walk(on, n, Assigning<F>{f}, Out<T>{to}, In<E>(pointer<E>(inputs))...);
  }
  constexpr int count = sizeof...(Inputs);
  constexpr int N = static_cast<int>(16 / std::max({sizeof(T), sizeof(E)...}));
  const Places<count> places(out.shape(), {cpu::steps_of(inputs.shape(), out.shape())...});
  bool packed = places.row() % N == 0 && elements_before<T, N>(to) == 0;
  const auto fits = [&]<class Element>(const Element* data, int k) {
    const std::int64_t* step = places.step[k];
    if (step[places.dims - 1] == 0) return;
    packed = packed && elements_before<Element, N>(data) == 0;
    for (int d = 0; d + 1 < places.dims; ++d) packed = packed && step[d] % N == 0;
  };
  (fits(pointer<const E>(inputs), K), ...);
  launch(on, blocks_for(packed ? n / N : n), block, broadcast_kernel<N, F, T, Operand<E, K>...>, n,
         packed, f, to, places, Operand<E, K>{pointer<const E>(inputs)}...);
}

// T is the result's type, E... the operands'.
template <class T, class... E, class F, class... Inputs>
void broadcast(const F& f, const Tensor& out, const Inputs&... inputs) {
  broadcast_over<T, E...>(out, f, out, std::index_sequence_for<Inputs...>(), inputs...);
}

}  // namespace peal::cuda
