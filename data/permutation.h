// SPDX-License-Identifier: Apache-2.0
// A permutation of 0..size-1 whose every element is computed by itself, in constant time and
// memory: a Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from
// pseudorandom functions", 1988) of four rounds of Philox over the smallest power of four that is
// no less than size, walked on until it falls below size (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002). The walk takes fewer than four steps on average.
//
// For large sizes, where a rank has no room for the order of all samples; of a handful of elements
// it gives only some of the possible orders. Thread safety: a value.
#pragma once

#include <cstdint>

namespace peal::data {

class Permutation {
 public:
  // Errors: size < 0 or above 2^62.
  Permutation(std::int64_t size, std::uint64_t seed);
  // REQUIRES: 0 <= place < size.
  std::int64_t at(std::int64_t place) const;

 private:
  std::uint64_t size_, seed_;
  int half_ = 1;  // bits of either half
};

}  // namespace peal::data
