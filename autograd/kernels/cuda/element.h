// SPDX-License-Identifier: Apache-2.0
// Elements as bytes, for kernels that move them and compute nothing: with_element(size, f) calls
// f<E>() with a type of that many, and with_bytes for several that move as one. Thread safety: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peal::cuda {

struct alignas(16) SixteenBytes {
  std::uint64_t low, high;
};

// size: 1, 2, 4 or 8.
template <class F>
void with_element(std::size_t size, F&& f) {
  switch (size) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

// size: 1, 2, 4, 8 or 16.
template <class F>
void with_bytes(std::size_t size, F&& f) {
  if (size == 16) return f.template operator()<SixteenBytes>();
  with_element(size, f);
}

}  // namespace peal::cuda
