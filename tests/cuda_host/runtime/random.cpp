// SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include <cstdlib>

namespace cuda_host {
namespace {

std::uint64_t& state() {
  static std::uint64_t word = [] {
    const char* seed = std::getenv("CUDA_HOST_SEED");
    return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
  }();
  return word;
}

}  // namespace

void reseed(std::uint64_t seed) { state() = seed; }

// Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (2014): SplitMix64.
std::uint64_t draw() {
  std::uint64_t z = state() += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace cuda_host
