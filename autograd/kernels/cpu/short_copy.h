// SPDX-License-Identifier: Apache-2.0
// memcpy for runs of a few elements, as rows of embeddings are: calling it takes longer than such a
// copy. Thread safety: as of the ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace peal::cpu {

// Word by word, of which the last may overlap the one before. REQUIRES: bytes >= word.
template <std::size_t word>
inline void copy_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at + word < bytes; at += word) std::memcpy(to + at, from + at, word);
  std::memcpy(to + bytes - word, from + bytes - word, word);
}

// REQUIRES: the ranges do not overlap.
template <class T>
inline void short_copy(T* to, const T* from, std::int64_t n) {
  auto* out = reinterpret_cast<std::byte*>(to);
  const auto* in = reinterpret_cast<const std::byte*>(from);
  const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
  if (bytes > 64) {
    std::memcpy(out, in, bytes);
  } else if (bytes >= 16) {
    copy_words<16>(out, in, bytes);
  } else if (bytes >= 4) {
    copy_words<4>(out, in, bytes);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) out[i] = in[i];
  }
}

}  // namespace peal::cpu
