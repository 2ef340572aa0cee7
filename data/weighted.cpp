// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/sha256.h>
#include <peal/data/weighted.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

namespace peal::data {
namespace {

// [0, 1), by number. The sampler's orders and permutations are drawn below this part of the stream.
double uniform(std::uint64_t seed, std::uint64_t number) {
  constexpr std::uint64_t last_quarter = std::uint64_t{3} << 62;
  const PhiloxBlock block = philox(seed, last_quarter + number);
  const std::uint64_t bits = std::uint64_t{block.word[0]} << 32 | block.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// How many are not 0.
std::int64_t check(std::span<const double> weights, std::int64_t count, bool replacement) {
  std::int64_t above = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    PEAL_CHECK(std::isfinite(weights[i]) && weights[i] >= 0,
               "[data] weighted sampler: expected a finite weight of at least 0, got ", weights[i],
               " for sample ", i);
    above += weights[i] > 0;
  }
  PEAL_CHECK(count >= 0, "[data] weighted sampler: expected a count of at least 0, got ", count);
  PEAL_CHECK(count == 0 || above > 0, "[data] weighted sampler: none of ", weights.size(),
             " samples has a weight above 0");
  PEAL_CHECK(replacement || count <= above, "[data] weighted sampler: ", count,
             " draws without replacement from ", above, " samples whose weight is not 0");
  return above;
}

// The first 64 bits of SHA-256, so that a state tells whether it is of the same weights.
std::int64_t digest_of(std::span<const double> weights) {
  Sha256 sum;
  sum.add({reinterpret_cast<const std::uint8_t*>(weights.data()), weights.size_bytes()});
  return static_cast<std::int64_t>(std::stoull(sum.digest().substr(0, 16), nullptr, 16));
}

}  // namespace

std::vector<std::int64_t> weighted_order(std::span<const double> weights, std::int64_t count,
                                         bool replacement, std::uint64_t seed, std::int64_t epoch) {
  check(weights, count, replacement);
  seed += static_cast<std::uint64_t>(epoch);
  if (!replacement) {
    // The smallest of exponential waiting times, whose rates are the weights, is the first draw.
    std::vector<std::pair<double, std::int64_t>> waits;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) {
        waits.emplace_back(-std::log1p(-uniform(seed, i)) / weights[i], std::int64_t(i));
      }
    }
    std::partial_sort(waits.begin(), waits.begin() + count, waits.end());
    std::vector<std::int64_t> drawn;
    for (std::int64_t i = 0; i < count; ++i) {
      drawn.push_back(waits[static_cast<std::size_t>(i)].second);
    }
    return drawn;
  }
  std::vector<double> sums(weights.size());
  std::partial_sum(weights.begin(), weights.end(), sums.begin());
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < drawn.size(); ++k) {
    const double at = uniform(seed, k) * sums.back();
    // The first sum above it; where rounding made it the whole, the last that has a weight.
    const auto found = std::upper_bound(sums.begin(), sums.end(), at);
    const auto sample =
        found != sums.end() ? found : std::lower_bound(sums.begin(), sums.end(), sums.back());
    drawn[k] = sample - sums.begin();
  }
  return drawn;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, std::int64_t count,
                                             const WeightedOptions& options)
    : DrawnSampler(std::ssize(weights), (check(weights, count, options.replacement), count),
                   options),
      weights_(std::make_shared<const std::vector<double>>(std::move(weights))),
      digest_(digest_of(*weights_)),
      count_(count),
      options_(options) {}

std::vector<std::pair<std::string, std::int64_t>> WeightedRandomSampler::order_of() const {
  auto all = DrawnSampler::order_of();
  all.emplace_back("weights_digest", digest_);
  return all;
}

std::vector<std::int64_t> WeightedRandomSampler::drawn(std::int64_t epoch) const {
  return weighted_order(*weights_, count_, options_.replacement, options_.seed, epoch);
}

}  // namespace peal::data
