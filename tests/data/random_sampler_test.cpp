// SPDX-License-Identifier: Apache-2.0
// Samplers of single samples: in order, and by chance with and without replacement, dealt to ranks
// and taken up within an epoch.
#include <doctest/doctest.h>
#include <peal/data/random_sampler.h>
#include <peal/tests/errors.h>

#include "drawn.h"

#include <set>

using peal::data::RandomSampler;
using peal::data::RandomSamplerOptions;
using peal::data::SequentialSampler;
using peal::testing::check_has;
using peal::testing::error_of;

TEST_CASE("a sequential sampler gives samples as they stand, in each epoch") {
  SequentialSampler sampler(5);
  CHECK(sampler.indices() == up_to(5));
  sampler.set_epoch(3);
  CHECK(sampler.indices() == up_to(5));
  DataLoader loader(std::make_shared<Drawn>(5), std::make_shared<SequentialSampler>(5),
                    {.batch_size = 2});
  CHECK(epoch_of(loader) == Batches{{0, 1}, {2, 3}, {4}});
}

TEST_CASE("without replacement every sample comes before one comes again") {
  for (const std::int64_t size : {1, 2, 7, 40}) {
    for (const std::int64_t count : {std::int64_t{0}, size / 2, size, size + 1, 3 * size}) {
      const Samples all = RandomSampler(size, {.num_samples = count, .seed = 4}).indices();
      REQUIRE(std::ssize(all) == count);
      for (std::int64_t at = 0; at < count; at += size) {
        const auto end = all.begin() + std::min(at + size, count);
        CHECK(std::set<std::int64_t>(all.begin() + at, end).size() ==
              static_cast<std::size_t>(end - all.begin() - at));
      }
      CHECK(std::all_of(all.begin(), all.end(),
                        [&](std::int64_t sample) { return sample >= 0 && sample < size; }));
    }
  }
  const Samples twice = RandomSampler(40, {.num_samples = 80}).indices();
  CHECK(Samples(twice.begin(), twice.begin() + 40) != Samples(twice.begin() + 40, twice.end()));
  CHECK(Samples(twice.begin(), twice.begin() + 40) == peal::data::shard(40, 1, 0));
}

TEST_CASE("with replacement all samples are alike") {
  std::vector<int> counts(10);
  RandomSampler sampler(10, {.replacement = true, .num_samples = 20000, .seed = 9});
  for (const std::int64_t sample : sampler.indices()) ++counts.at(static_cast<std::size_t>(sample));
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - 2000.0) * (count - 2000.0) / 2000.0;
  CHECK(chi_squared < 27.9);  // one in a thousand, of nine degrees of freedom; of a fixed seed
  const Samples first = sampler.indices();
  CHECK(first == sampler.indices());
  sampler.set_epoch(1);
  CHECK(first != sampler.indices());
}

TEST_CASE("ranks take turns with the draws, and an epoch is taken up in another world") {
  for (const bool replacement : {false, true}) {
    const auto of = [&](int rank, int world, std::int64_t consumed) {
      RandomSampler sampler(
          20, {.replacement = replacement, .num_samples = 24, .seed = 1, .place = {rank, world}});
      sampler.resume(2, consumed);
      return sampler.indices();
    };
    const Samples whole = of(0, 1, 0);
    for (const int world : {2, 3, 4}) {
      for (const std::int64_t consumed : {0, 12}) {
        Samples dealt(24 - static_cast<std::size_t>(consumed));
        for (int rank = 0; rank < world; ++rank) {
          const Samples mine = of(rank, world, consumed);
          for (std::size_t k = 0; k < mine.size(); ++k) {
            dealt.at(k * static_cast<std::size_t>(world) + static_cast<std::size_t>(rank)) =
                mine[k];
          }
        }
        CHECK(dealt == Samples(whole.begin() + consumed, whole.end()));
      }
    }
  }
}

TEST_CASE("what cannot be drawn is refused") {
  check_has(error_of([] { RandomSampler(0, {.num_samples = 3}); }),
            "[data] random sampler: 3 samples of an empty set cannot be drawn");
  check_has(error_of([] { RandomSampler(4, {.num_samples = -1}); }),
            "expected a size and num_samples of at least 0, got 4 and -1");
  CHECK(RandomSampler(0).indices().empty());
}
