// SPDX-License-Identifier: Apache-2.0
// Chance for augmentation. Each sample of each epoch has a stream of random numbers of its own,
// which is a pure function of (seed, epoch, index of the sample). So what is drawn for a sample
// depends neither on the number of workers or ranks nor on where a run was taken up, and never on
// the batch that the sample is in. Thread safety: a Draw belongs to one thread; Draws is a value.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>

#include <cstdint>

namespace peal::data {

// One sample's stream.
class Draw {
 public:
  explicit Draw(std::uint64_t key) : key_(key) {}

  std::uint32_t bits() { return philox_word(key_, at_++); }
  // [0, 1).
  float uniform() { return uniform_from(bits()); }
  // 0..count-1, all alike but for less than count / 2^32. REQUIRES: count >= 1.
  std::uint32_t below(std::uint32_t count) {
    PEAL_CHECK(count >= 1, "[data] draw: expected a count of at least 1, got 0");
    return static_cast<std::uint32_t>(std::uint64_t{bits()} * count >> 32);
  }
  // True with this probability.
  bool happens(float probability) { return uniform() < probability; }
  // For ops that draw: context().generator = draw.generator(). A stream apart from the above.
  Generator generator() const { return {~key_, 0}; }

 private:
  std::uint64_t key_, at_ = 0;
};

// Those of an epoch.
struct Draws {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;

  Draw of(std::int64_t index) const {
    const auto key = [](const PhiloxBlock& block) {
      return std::uint64_t{block.word[0]} << 32 | block.word[1];
    };
    // The sampler draws orders from blocks of the same seed in the upper half of the stream.
    constexpr std::uint64_t quarter = std::uint64_t{1} << 62;
    const std::uint64_t of_epoch = key(philox(seed, quarter + static_cast<std::uint64_t>(epoch)));
    return Draw(key(philox(of_epoch, static_cast<std::uint64_t>(index))));
  }
};

}  // namespace peal::data
