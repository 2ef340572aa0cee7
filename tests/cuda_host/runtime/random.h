// SPDX-License-Identifier: Apache-2.0
// The order of what CUDA leaves open, from one generator: CUDA_HOST_SEED (0 where it is not set),
// or reseed. Thread safety: under queue.h's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cuda_host {

void reseed(std::uint64_t seed);
std::uint64_t draw();  // 64 bits

// In [0, n), n > 0.
inline std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw() >> 11) % n; }

template <class T>
void shuffle_order(std::vector<T>& list) {
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(i)]);
}

}  // namespace cuda_host
