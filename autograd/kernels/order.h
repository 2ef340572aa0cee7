// SPDX-License-Identifier: Apache-2.0
// The order of elements that the kernels of both devices go by: by size, a NaN largest, and of
// equal ones (0 and -0 among them) the one that came first. Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>

#include <type_traits>

namespace peal {

template <class T>
PEAL_ELEMENT bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x != x;
  } else {
    return false;
  }
}

// a before b.
template <class T>
PEAL_ELEMENT bool comes_before(T a, T b, bool descending) {
  const T first = descending ? b : a, second = descending ? a : b;
  return first < second || (is_nan(second) && !is_nan(first));
}

// The place in a sorted run of `size` elements where x belongs: before those that equal it, or
// after them where `right`.
template <class T>
PEAL_ELEMENT long long place_in_order(const T* sorted, long long size, T x, bool right) {
  using C = functor::computed<T>;
  const C value = static_cast<C>(x);
  long long begin = 0, end = size;
  while (begin < end) {
    const long long middle = begin + (end - begin) / 2;
    const C at = static_cast<C>(sorted[middle]);
    const bool stop = right ? at > value : at >= value;  // never of a NaN, which belongs last
    if (stop) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

}  // namespace peal
