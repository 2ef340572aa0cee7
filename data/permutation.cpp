// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/data/permutation.h>

#include <utility>

namespace peal::data {

Permutation::Permutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)), seed_(seed) {
  PEAL_CHECK(size >= 0 && size_ <= std::uint64_t{1} << 62,
             "[data] permutation: expected a size from 0 to 2^62, got ", size);
  while (std::uint64_t{1} << (2 * half_) < size_) ++half_;
}

std::int64_t Permutation::at(std::int64_t place) const {
  constexpr std::uint64_t upper_half = std::uint64_t{1} << 63;  // no op's generator gets there
  const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
  auto value = static_cast<std::uint64_t>(place);
  do {
    std::uint64_t left = value >> half_, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const PhiloxBlock block = philox(seed_, upper_half | round << 60 | right);
      left ^= block.word[0] & mask;
      std::swap(left, right);
    }
    value = left << half_ | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace peal::data
