// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/data/permutation.h>
#include <peal/data/shards/shard_sampler.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace peal::data {
namespace {

std::int64_t checked_sum(const std::vector<std::int64_t>& sizes) {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) {
    PEAL_CHECK(size >= 0, "[data] shard sampler: expected sizes of at least 0, got ", size);
    sum += size;
  }
  return sum;
}

// Where the shards' samples stand in a sequence.
struct Sequence {
  std::vector<std::int64_t> ends;   // up to that of each shard, in the sequence's order
  std::vector<std::int64_t> first;  // the number of that shard's first sample

  std::int64_t at(std::int64_t place) const {
    const auto k =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), place) - ends.begin());
    return first[k] + place - (k == 0 ? 0 : ends[k - 1]);
  }
};

Sequence sequence_of(const std::vector<std::int64_t>& sizes, const Order& shards) {
  std::vector<std::int64_t> begins;
  std::int64_t begin = 0, end = 0;
  for (const std::int64_t size : sizes) begins.push_back(std::exchange(begin, begin + size));
  Sequence all;
  for (std::int64_t k = 0; k < shards.size(); ++k) {
    const auto shard = static_cast<std::size_t>(shards[k]);
    all.ends.push_back(end += sizes[shard]);
    all.first.push_back(begins[shard]);
  }
  return all;
}

// A place within its block of a window; blocks begin at -shift, and are numbered from `number` on.
std::int64_t within_block(std::int64_t place, std::int64_t shift, std::int64_t window,
                          std::int64_t size, std::uint64_t seed, std::uint64_t number) {
  const std::int64_t block = (place + shift) / window;
  const std::int64_t begin = std::max<std::int64_t>(block * window - shift, 0);
  const std::int64_t end = std::min((block + 1) * window - shift, size);
  // The part of the stream that neither orders nor draws of augmentation take.
  constexpr std::uint64_t part = std::uint64_t{3} << 61;
  const PhiloxBlock key = philox(seed, part + (number + static_cast<std::uint64_t>(block)));
  const std::uint64_t of_block = std::uint64_t{key.word[0]} << 32 | key.word[1];
  return begin + Permutation(end - begin, of_block).at(place - begin);
}

}  // namespace

Order shard_order(const std::vector<std::int64_t>& sizes, const ShardSamplerOptions& options,
                  std::int64_t epoch) {
  const std::int64_t size = checked_sum(sizes), window = std::min(options.window, size);
  PEAL_CHECK(options.window >= 1, "[data] shard sampler: expected a window of at least 1, got ",
             options.window);
  if (!options.shuffle) return {size, [](std::int64_t k) { return k; }};
  const Order shards = epoch_order(std::ssize(sizes), {.seed = options.seed, .epoch = epoch});
  const auto sequence = std::make_shared<const Sequence>(sequence_of(sizes, shards));
  const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(epoch);
  return {size, [=](std::int64_t k) {
            constexpr std::uint64_t second = std::uint64_t{1} << 60;
            const std::int64_t place = within_block(k, window / 2, window, size, seed, second);
            return sequence->at(within_block(place, 0, window, size, seed, 0));
          }};
}

ShardSampler::ShardSampler(std::vector<std::int64_t> sizes, Place place,
                           const ShardSamplerOptions& options)
    : DistributedSampler(checked_sum(sizes), place.world, place.rank,
                         {.shuffle = options.shuffle,
                          .seed = options.seed,
                          .drop_last = options.drop_last,
                          .exact = options.exact}),
      sizes_(std::move(sizes)),
      place_(place),
      how_(options) {
  shard_order(sizes_, how_, 0);
}

std::vector<std::pair<std::string, std::int64_t>> ShardSampler::order_of() const {
  auto numbers = DistributedSampler::order_of();
  if (!how_.shuffle) return numbers;
  numbers.emplace_back("window", std::min(how_.window, numbers[0].second));
  return numbers;
}

Order ShardSampler::order() const {
  const auto& now = options();
  ShardOptions as_they_stand = now;
  as_they_stand.shuffle = false;
  Order mine = planned_shard(checked_sum(sizes_), place_.world, place_.rank, as_they_stand);
  const std::int64_t count = mine.size();
  return {count, [mine = std::move(mine), all = shard_order(sizes_, how_, now.epoch)](
                     std::int64_t k) { return all[mine[k]]; }};
}

}  // namespace peal::data
