// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/09-sharded-data.md.
#include <peal/data/sampler.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <vector>

namespace {

using namespace peal;

// How often each sample comes, over all ranks.
std::vector<int> times(std::int64_t size, int world, const data::ShardOptions& options) {
  std::vector<int> counted(static_cast<std::size_t>(size), 0);
  for (int rank = 0; rank < world; ++rank) {
    for (const std::int64_t sample : data::shard(size, world, rank, options)) {
      ++counted[static_cast<std::size_t>(sample)];
    }
  }
  return counted;
}

}  // namespace

TEST_CASE(
    "9.1: of seven samples on three ranks the first two come twice, the last never, or none") {
  CHECK(times(7, 3, {.shuffle = false}) == std::vector<int>{2, 2, 1, 1, 1, 1, 1});
  CHECK(times(7, 3, {.shuffle = false, .drop_last = true}) ==
        std::vector<int>{1, 1, 1, 1, 1, 1, 0});
  CHECK(times(7, 3, {.shuffle = false, .exact = true}) == std::vector<int>(7, 1));
}

TEST_CASE("9.2: ranks with seeds of their own see some samples twice and others never") {
  std::set<std::int64_t> same, own;
  for (int rank = 0; rank < 4; ++rank) {
    const auto seed = static_cast<std::uint64_t>(rank);
    for (const auto sample : data::shard(100, 4, rank, {.seed = 7})) same.insert(sample);
    for (const auto sample : data::shard(100, 4, rank, {.seed = seed})) own.insert(sample);
  }
  CHECK(same.size() == 100);
  CHECK(own.size() < 90);  // dropout is another matter: the samples differ, and so may the noise
}

TEST_CASE("9.3: the place is what all have finished; what three of four did more is seen again") {
  // After two batches of 5 each, a third that rank 3 has not finished: 40 may stand in the
  // checkpoint. The 15 of the others come once more; with 55 or 60 there, some would be lost.
  std::vector<int> seen(100, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const auto mine = data::shard(100, 4, rank, {.seed = 7});
    const std::size_t done = rank < 3 ? 15 : 10;
    for (std::size_t i = 0; i < done; ++i) ++seen[static_cast<std::size_t>(mine[i])];
  }
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto sample : data::shard(100, 4, rank, {.seed = 7, .consumed = 40})) {
      ++seen[static_cast<std::size_t>(sample)];
    }
  }
  int twice = 0, never = 0;
  for (const int count : seen) {
    twice += count == 2 ? 1 : 0;
    never += count == 0 ? 1 : 0;
  }
  CHECK(twice == 15);
  CHECK(never == 0);
}
