// SPDX-License-Identifier: Apache-2.0
// Random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). Counter based: number i of a stream is a pure function of (seed, i), so the CPU and the
// GPU, one thread or many, give the same bits. A Generator hands out ranges of the stream; an op
// that draws n numbers reserves n of them once and computes each where it is needed. Thread safety:
// functions are pure; a Generator belongs to one thread.
#pragma once

#include <peal/autograd/core/half.h>

#include <cstdint>

namespace peal {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// The four words of block `counter` of the stream `seed`.
PEAL_HOST_DEVICE inline PhiloxBlock philox(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter),
                c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = 0, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Word i of the stream.
PEAL_HOST_DEVICE inline std::uint32_t philox_word(std::uint64_t seed, std::uint64_t i) {
  return philox(seed, i >> 2).word[i & 3];
}

// [0, 1) with 24 random bits: exact in f32, so equal on every device.
PEAL_HOST_DEVICE inline float uniform_from(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// A place in a stream: word `offset` and those that follow belong to whoever reserved them.
struct RandomRange {
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* shift = nullptr;  // on the device, in a captured graph (graph.h), else null
  PEAL_HOST_DEVICE std::uint32_t word(std::uint64_t i) const {
    return philox_word(seed, offset + i);
  }
  PEAL_HOST_DEVICE float uniform(std::uint64_t i) const { return uniform_from(word(i)); }
  // A device's kernel draws from this: where the range lies in the replay that is under way.
  PEAL_HOST_DEVICE RandomRange shifted() const {
    return {seed, offset + (shift == nullptr ? 0 : *shift), nullptr};
  }
};

// Hands out ranges of one stream; its whole state is (seed, offset), so a checkpoint stores two
// integers.
struct Generator {
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* shift = nullptr;  // while a graph is captured

  // n words nobody else gets, starting on a block of four.
  RandomRange reserve(std::uint64_t n) {
    const RandomRange range{seed, offset, shift};
    offset += (n + 3) / 4 * 4;
    return range;
  }
};

}  // namespace peal
