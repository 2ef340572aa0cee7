// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/data/random_sampler.h>

#include <algorithm>
#include <cstddef>

namespace peal::data {
namespace {

std::int64_t checked_count(std::int64_t size, const RandomSamplerOptions& options) {
  const std::int64_t count = options.num_samples.value_or(size);
  PEAL_CHECK(size >= 0 && count >= 0,
             "[data] random sampler: expected a size and num_samples of at least 0, got ", size,
             " and ", count);
  PEAL_CHECK(size > 0 || count == 0, "[data] random sampler: ", count,
             " samples of an empty set cannot be drawn");
  return count;
}

}  // namespace

RandomSampler::RandomSampler(std::int64_t size, const RandomSamplerOptions& options)
    : DrawnSampler(size, checked_count(size, options), options), size_(size), options_(options) {}

std::vector<std::int64_t> RandomSampler::drawn(std::int64_t epoch) const {
  const std::int64_t count = options_.num_samples.value_or(size_);
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(count));
  if (options_.replacement) {
    // The part of the stream that weighted draws take, too.
    constexpr std::uint64_t last_quarter = std::uint64_t{3} << 62;
    const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch);
    for (std::int64_t k = 0; k < count; ++k) {
      const PhiloxBlock block = philox(seed, last_quarter + static_cast<std::uint64_t>(k));
      const std::uint64_t bits = std::uint64_t{block.word[0]} << 32 | block.word[1];
      all.push_back(static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(size_)));
    }
    return all;
  }
  for (std::uint64_t pass = 0; std::ssize(all) < count; ++pass) {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
    const std::vector<std::int64_t> order =
        shard(size_, 1, 0, {.seed = options_.seed + pass * golden, .epoch = epoch});
    all.insert(all.end(), order.begin(), order.begin() + std::min(size_, count - std::ssize(all)));
  }
  return all;
}

}  // namespace peal::data
