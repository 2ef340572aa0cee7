// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/rng.h>

#include <doctest/doctest.h>

#include <set>

using namespace peal;

// The known answers that come with the paper's code (Random123, kat_vectors): philox4x32, 10
// rounds.
TEST_CASE("Philox gives its known answers") {
  const PhiloxBlock zero = philox(0, 0);
  CHECK(zero.word[0] == 0x6627e8d5u);
  CHECK(zero.word[1] == 0xe169c58du);
  CHECK(zero.word[2] == 0xbc57ac4cu);
  CHECK(zero.word[3] == 0x9b00dbd8u);
}

TEST_CASE("word i of a stream is word i mod 4 of block i / 4") {
  for (std::uint64_t i = 0; i < 16; ++i) CHECK(philox_word(7, i) == philox(7, i / 4).word[i % 4]);
  const RandomRange range{7, 8};
  CHECK(range.word(3) == philox(7, 2).word[3]);
}

TEST_CASE("seeds and counters count in full") {
  std::set<std::uint32_t> words;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32, 1ull << 63}) {
    for (const std::uint64_t counter : {0ull, 1ull, 1ull << 32, 1ull << 61}) {
      words.insert(philox(seed, counter).word[0]);
    }
  }
  CHECK(words.size() == 16);
}

TEST_CASE("a generator hands out disjoint ranges that start on a block") {
  Generator generator{3, 0};
  const RandomRange a = generator.reserve(5), b = generator.reserve(1), c = generator.reserve(4);
  CHECK(a.offset == 0);
  CHECK(b.offset == 8);
  CHECK(c.offset == 12);
  CHECK(generator.offset == 16);
}

TEST_CASE("uniforms lie in [0, 1)") {
  CHECK(uniform_from(0) == 0.0f);
  CHECK(uniform_from(0xffffffffu) < 1.0f);
  CHECK(uniform_from(0x80000000u) == 0.5f);
}
