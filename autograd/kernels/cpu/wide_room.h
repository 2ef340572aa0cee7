// SPDX-License-Identifier: Apache-2.0
// Elements as loops of f32 and f64 take them: where they lie, or of f16 and bf16 widened in a room
// on the way in and rounded on the way out. With rooms that a cache holds what is computed in f32
// never leaves it. Thread safety: a WideRoom belongs to one thread.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/functors.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace peal::cpu {

template <class T>
class WideRoom {
 public:
  using Real = functor::computed<T>;
  static constexpr bool widens = !std::is_same_v<T, Real>;

  // For so many elements at once.
  explicit WideRoom(std::int64_t size) {
    if constexpr (widens) {
      room_ = std::make_unique_for_overwrite<Real[]>(static_cast<std::size_t>(size));
    }
  }

  // x's n elements, until the room is used again.
  const Real* read(const T* x, std::int64_t n) const {
    if constexpr (widens) {
      width_loops<T>().widen(room_.get(), x, n);
      return room_.get();
    } else {
      return x;
    }
  }
  // Calls f with where n elements are to be computed that become y's.
  template <class F>
  void write(T* y, std::int64_t n, F&& f) const {
    if constexpr (widens) {
      f(room_.get());
      width_loops<T>().narrow(y, room_.get(), n);
    } else {
      f(y);
    }
  }

 private:
  std::unique_ptr<Real[]> room_;
};

// Elements of a room that the first cache holds beside another.
inline constexpr std::int64_t room_elements = 1024;

// f(first element, how many) over [begin, end): all at once, or as many as such a room holds.
template <class T, class F>
void each_room(std::int64_t begin, std::int64_t end, F&& f) {
  const std::int64_t step = WideRoom<T>::widens ? room_elements : end - begin;
  for (std::int64_t at = begin; at < end; at += step) f(at, std::min(step, end - at));
}

}  // namespace peal::cpu
