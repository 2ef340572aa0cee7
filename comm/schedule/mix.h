// SPDX-License-Identifier: Apache-2.0
#pragma once

// A mixer of hashes: one word after the other, in an order that counts. The finaliser of splitmix64
// over a running sum (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
// Equal on every machine, so ranks may compare what it gives. Thread safety: a pure function.

#include <cstdint>

namespace peal::comm {

// Takes 64 more bits into a hash, in place (source: Steele, Lea, Flood 2014, SplitMix64).
constexpr void mix(std::uint64_t& state, std::uint64_t word) {
  state += word + 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  state ^= state >> 31;
}

}  // namespace peal::comm
