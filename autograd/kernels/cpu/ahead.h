// SPDX-License-Identifier: Apache-2.0
// Prefetch of what a kernel reads soon. Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace peal::cpu {

// Asks for n elements, which need not be there, so that they are in the second cache when their
// turn comes. Short rows, and rows far apart, end before the CPU foresees what comes after; of long
// ones a page is enough.
template <class T>
void ask_ahead(const T* x, std::int64_t n) {
  constexpr std::int64_t line = 64 / sizeof(T), page = 4096 / sizeof(T);
  for (std::int64_t i = 0; i < n && i < page; i += line) __builtin_prefetch(x + i, 0, 2);
}

}  // namespace peal::cpu
