// SPDX-License-Identifier: Apache-2.0
// Vectors as wide as the level's registers, for the loops that the compiler does not find by
// itself. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/functors.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// Vectors of this level's width, in GCC's portable notation.
#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
template <class T>
constexpr int lanes = vector_bytes / sizeof(T);
template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(vector_bytes)));
  typedef std::uint8_t bytes __attribute__((vector_size(lanes<T>)));
  typedef std::uint16_t shorts __attribute__((vector_size(2 * lanes<T>)));
  typedef std::uint32_t words __attribute__((vector_size(4 * lanes<T>)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
using Bytes = typename VectorOf<T>::bytes;  // as many bytes as a vector has lanes of T
template <class T>
using Integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
template <class T>
using Lanes = std::make_index_sequence<lanes<T>>;

// The end of the vectors that hold the first `count` of n elements.
template <class T>
PEAL_ELEMENT std::int64_t whole_vectors(std::int64_t count, std::int64_t n) {
  const std::int64_t end = (count + lanes<T> - 1) / lanes<T> * lanes<T>;
  return end < n ? end : n;
}

template <class V, class T>
PEAL_ELEMENT void load(V& value, const T* from) {
  __builtin_memcpy(&value, from, sizeof value);
}
template <class V, class T>
PEAL_ELEMENT void store(T* to, const V& value) {
  __builtin_memcpy(static_cast<void*>(to), &value, sizeof value);
}
// Bytes as integers, and back. Step by step: GCC 12 takes steps of more than twice the size apart
// into single elements.
template <class T>
PEAL_ELEMENT Vector<Integer<T>> integers_of(const Bytes<T>& x) {
  const auto shorts = __builtin_convertvector(x, typename VectorOf<T>::shorts);
  const auto words = __builtin_convertvector(shorts, typename VectorOf<T>::words);
  return __builtin_convertvector(words, Vector<Integer<T>>);
}
template <class T>
PEAL_ELEMENT Bytes<T> bytes_of(const Vector<Integer<T>>& x) {
  const auto words = __builtin_convertvector(x, typename VectorOf<T>::words);
  const auto shorts = __builtin_convertvector(words, typename VectorOf<T>::shorts);
  return __builtin_convertvector(shorts, Bytes<T>);
}
template <class V, std::size_t... I>
PEAL_ELEMENT V evens(const V& a, const V& b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...);
}
template <class V, std::size_t... I>
PEAL_ELEMENT V odds(const V& a, const V& b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (2 * I + 1)...);
}
// a0 b0 a1 b1 ...: of the lower halves and of the upper.
template <class V, std::size_t... I>
PEAL_ELEMENT V zip_low(const V& a, const V& b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (I / 2 + I % 2 * sizeof...(I))...);
}
template <class V, std::size_t... I>
PEAL_ELEMENT V zip_high(const V& a, const V& b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (sizeof...(I) / 2 + I / 2 + I % 2 * sizeof...(I))...);
}
// Each lane becomes the sum of itself and the one `apart` on.
template <int apart, class V, std::size_t... I>
PEAL_ELEMENT V sum_of_pairs(const V& x, std::index_sequence<I...>) {
  return x + __builtin_shufflevector(x, x, (I ^ apart)...);
}
template <class T>
PEAL_ELEMENT T sum_of_lanes(Vector<T> x) {
  if constexpr (lanes < T >> 8) x = sum_of_pairs<8>(x, Lanes<T>{});
  if constexpr (lanes < T >> 4) x = sum_of_pairs<4>(x, Lanes<T>{});
  if constexpr (lanes < T >> 2) x = sum_of_pairs<2>(x, Lanes<T>{});
  return sum_of_pairs<1>(x, Lanes<T>{})[0];
}
// Each lane becomes the larger of itself and the one `apart` on.
template <int apart, class V, std::size_t... I>
PEAL_ELEMENT V larger_of_lanes(const V& x, std::index_sequence<I...>) {
  const V other = __builtin_shufflevector(x, x, (I ^ apart)...);
  return other > x ? other : x;
}
// In all lanes the largest. REQUIRES: none is NaN.
template <class T>
PEAL_ELEMENT Vector<T> largest_lane(Vector<T> x) {
  if constexpr (lanes < T >> 8) x = larger_of_lanes<8>(x, Lanes<T>{});
  if constexpr (lanes < T >> 4) x = larger_of_lanes<4>(x, Lanes<T>{});
  if constexpr (lanes < T >> 2) x = larger_of_lanes<2>(x, Lanes<T>{});
  return larger_of_lanes<1>(x, Lanes<T>{});
}

// Sums of terms, four vectors at a time, as an addition takes so many cycles. A term adds what
// element i gives to its sums: a vector of elements, or one.
template <class Real, int many>
struct TermSums {
  Vector<Real> parts[4][many] = {};
  Real rest[many] = {};

  template <class Term>
  PEAL_ELEMENT void add(const Term& term, std::int64_t i, std::int64_t end) {
    constexpr std::int64_t wide = lanes<Real>;
    for (; i + 4 * wide <= end; i += 4 * wide) {
      for (int u = 0; u < 4; ++u) term.add(parts[u], i + u * wide);
    }
    for (; i + wide <= end; i += wide) term.add(parts[0], i);
    for (; i < end; ++i) term.add(rest, i);
  }
  PEAL_ELEMENT double sum(int j) const {
    const Vector<Real> all = (parts[0][j] + parts[1][j]) + (parts[2][j] + parts[3][j]);
    return static_cast<double>(rest[j]) + static_cast<double>(sum_of_lanes<Real>(all));
  }
};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
