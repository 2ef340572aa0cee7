// SPDX-License-Identifier: Apache-2.0
// Plans of batches: the cases of Accelerate's BatchSamplerShard, properties over many sizes, and
// batches by length.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/batches.h>

#include <algorithm>
#include <numeric>

using peal::data::Batches;
using peal::data::Tail;
using Samples = std::vector<std::int64_t>;

namespace {

Samples up_to(std::int64_t size) {
  Samples all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

// Rank's batches of 0..n-1 in batches of b.
Batches shard(std::int64_t n, std::int64_t b, int world, int rank, Tail tail = Tail::fill) {
  return batch_shard(peal::data::in_batches(up_to(n), b), b, {rank, world}, tail);
}

Samples tail_of(std::int64_t n, std::int64_t b, int world, int rank) {
  return shard(n, b, world, rank).back();
}

}  // namespace

TEST_CASE("samples are cut into batches") {
  CHECK(peal::data::in_batches(up_to(5), 2) == Batches{{0, 1}, {2, 3}, {4}});
  CHECK(peal::data::in_batches(up_to(5), 2, true) == Batches{{0, 1}, {2, 3}});
  CHECK(peal::data::in_batches(up_to(4), 2) == Batches{{0, 1}, {2, 3}});
  CHECK(peal::data::in_batches(up_to(0), 2).empty());
  for (std::int64_t n = 0; n < 50; ++n) {
    for (std::int64_t b = 1; b < 12; ++b) {
      for (const bool drop : {false, true}) {
        REQUIRE(peal::data::count_batches(n, b, drop) ==
                std::ssize(peal::data::in_batches(up_to(n), b, drop)));
      }
    }
  }
  CHECK_THROWS_WITH_AS(peal::data::in_batches(up_to(4), 0),
                       "[data] batches: expected a batch_size of at least 1, got 0", peal::Error);
}

TEST_CASE("ranks take turns with whole batches, as Accelerate has it") {
  CHECK(shard(20, 3, 2, 0) == Batches{{0, 1, 2}, {6, 7, 8}, {12, 13, 14}, {18, 19, 0}});
  CHECK(shard(20, 3, 2, 1) == Batches{{3, 4, 5}, {9, 10, 11}, {15, 16, 17}, {1, 2, 3}});
  CHECK(shard(24, 3, 2, 0).size() == 4);
  CHECK(tail_of(24, 3, 2, 0) == Samples{18, 19, 20});
  CHECK(tail_of(24, 3, 2, 1) == Samples{21, 22, 23});
  CHECK(tail_of(21, 3, 2, 0) == Samples{18, 19, 20});
  CHECK(tail_of(21, 3, 2, 1) == Samples{0, 1, 2});
  CHECK(tail_of(22, 3, 2, 0) == Samples{18, 19, 20});
  CHECK(tail_of(22, 3, 2, 1) == Samples{21, 0, 1});
  CHECK(tail_of(20, 3, 2, 0) == Samples{18, 19, 0});
  CHECK(tail_of(20, 3, 2, 1) == Samples{1, 2, 3});
  CHECK(tail_of(2, 3, 2, 0) == Samples{0, 1, 0});
  CHECK(tail_of(2, 3, 2, 1) == Samples{1, 0, 1});
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(tail_of(10, 2, 4, rank) == Batches{{8, 9}, {0, 1}, {2, 3}, {4, 5}}[rank]);
    CHECK(tail_of(5, 4, 4, rank) ==
          Batches{{0, 1, 2, 3}, {4, 0, 1, 2}, {3, 4, 0, 1}, {2, 3, 4, 0}}[rank]);
    CHECK(shard(11, 3, 4, rank, Tail::drop).empty());
  }
  CHECK(shard(11, 3, 4, 3) == Batches{{9, 10, 0}});
  for (const std::int64_t n : {20, 21, 22}) {
    for (const int rank : {0, 1}) CHECK(shard(n, 3, 2, rank, Tail::drop).size() == 3);
  }
  CHECK(shard(2, 3, 2, 0, Tail::drop).empty());
  CHECK(shard(21, 3, 2, 0, Tail::uneven).size() == 4);
  CHECK(shard(21, 3, 2, 1, Tail::uneven).size() == 3);
  CHECK(shard(22, 3, 2, 1, Tail::uneven).back() == Samples{21});
  CHECK(shard(20, 3, 2, 0, Tail::uneven).back() == Samples{18, 19});
  CHECK(shard(20, 3, 2, 1, Tail::uneven).size() == 3);
  CHECK(shard(2, 3, 2, 0, Tail::uneven) == Batches{{0, 1}});
  CHECK(shard(2, 3, 2, 1, Tail::uneven).empty());
  CHECK(shard(3, 1, 2, 0, Tail::uneven).size() == 2);
  CHECK(shard(3, 1, 2, 1, Tail::uneven).size() == 1);
  for (int rank = 0; rank < 4; ++rank) {  // an evaluation of MNIST's size
    CHECK(shard(10'000, 64, 4, rank).size() == 40);
    if (rank < 2) CHECK(shard(10'000, 64, 2, rank).size() == 79);
  }
  CHECK(shard(0, 3, 2, 1).empty());
  CHECK_THROWS_WITH_AS(shard(4, 2, 2, 2),
                       "[data] batch_shard: expected a rank below its world, got rank 2 of 2",
                       peal::Error);
}

TEST_CASE("every sample once where ranks may differ, full batches for all where not") {
  int cases = 0;
  for (std::int64_t n = 1; n < 40; ++n) {
    for (std::int64_t b = 1; b < 6; ++b) {
      for (int world = 1; world < 6; ++world) {
        Samples seen;
        std::size_t batches = 0;
        for (int rank = 0; rank < world; ++rank) {
          for (const Samples& batch : shard(n, b, world, rank, Tail::uneven)) {
            seen.insert(seen.end(), batch.begin(), batch.end());
          }
          const Batches filled = shard(n, b, world, rank);
          if (rank == 0) batches = filled.size();
          REQUIRE(filled.size() == batches);
          for (const Samples& batch : filled) REQUIRE(std::ssize(batch) == b);
        }
        std::sort(seen.begin(), seen.end());
        REQUIRE(seen == up_to(n));
        ++cases;
      }
    }
  }
  CHECK(cases == 975);
}

TEST_CASE("whole batches are split among the ranks, as Accelerate has it") {
  const auto split = [](std::int64_t n, int rank, Tail tail = Tail::fill) {
    return split_batches(peal::data::in_batches(up_to(n), 4), 4, {rank, 2}, tail);
  };
  CHECK(split(22, 0).size() == 6);
  CHECK(split(22, 0)[1] == Samples{4, 5});
  CHECK(split(22, 1)[1] == Samples{6, 7});
  CHECK(split(22, 0).back() == Samples{20, 21});
  CHECK(split(22, 1).back() == Samples{0, 1});
  CHECK(split(21, 0).back() == Samples{20, 0});
  CHECK(split(21, 1).back() == Samples{1, 2});
  CHECK(split(2, 0) == Batches{{0, 1}});
  CHECK(split(2, 1) == Batches{{0, 1}});
  CHECK(split(21, 0, Tail::uneven).back() == Samples{20});
  CHECK(split(21, 0, Tail::uneven).size() == 6);
  CHECK(split(21, 1, Tail::uneven).size() == 5);
  CHECK(split(2, 0, Tail::uneven) == Batches{{0, 1}});
  CHECK(split(2, 1, Tail::uneven).empty());
  CHECK(split(22, 0, Tail::drop).size() == 5);
  CHECK(split(24, 1, Tail::drop).size() == 6);
  CHECK(split(0, 0).empty());
  CHECK_THROWS_WITH_AS(peal::data::split_batches({}, 4, {0, 3}),
                       "[data] split_batches: batches of 4 samples cannot be split evenly among 3 "
                       "ranks; take a batch_size that 3 divides",
                       peal::Error);
}

TEST_CASE("one rank reads for all, as Accelerate's dispatcher does") {
  const auto read = [](std::int64_t n, std::int64_t b, int world, int rank, bool drop = false) {
    return peal::data::dispatched(peal::data::in_batches(up_to(n), b), b, {rank, world}, drop);
  };
  CHECK(read(21, 3, 2, 0).size() == 4);
  CHECK(read(21, 3, 2, 1)[0] == Samples{3, 4, 5});
  CHECK(read(21, 3, 2, 0).back() == Samples{18, 19});
  CHECK(read(21, 3, 2, 1).back() == Samples{20, 0});
  CHECK(read(20, 3, 2, 0).back() == Samples{18});
  CHECK(read(20, 3, 2, 1).back() == Samples{19});
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(read(10, 2, 4, rank).back() == Batches{{8}, {9}, {0}, {1}}[rank]);
    CHECK(read(10, 2, 4, rank, true).size() == 1);
    CHECK(read(1, 2, 4, rank) == Batches{{0}});
  }
  CHECK(read(0, 2, 4, 1).empty());
  CHECK(peal::data::dispatch_order(peal::data::in_batches(up_to(7), 2), 2, 3) ==
        Batches{{0, 1}, {2, 3}, {4, 5}, {6}, {0}, {1}});
  CHECK(peal::data::dispatch_order({}, 2, 3).empty());
}

TEST_CASE("contiguous parts, and how much of them is padding, as fastai has it") {
  const auto parts = [](std::int64_t n, std::int64_t b, int world, int rank, bool drop = false) {
    return peal::data::contiguous_batches(up_to(n), b, {rank, world}, drop);
  };
  for (int rank = 0; rank < 4; ++rank) {
    Samples whole;
    for (std::int64_t i = 0; i < 12; ++i) whole.push_back((13 * rank + i) % 50);
    CHECK(parts(50, 12, 4, rank) == Batches{whole, {(13 * rank + 12) % 50}});
    CHECK(parts(50, 12, 4, rank, true) == Batches{whole});
    CHECK(parts(7, 4, 4, rank) == Batches{Batches{{0, 1}, {2, 3}, {4, 5}, {6, 0}}[rank]});
  }
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(parts(3, 4, 5, rank) == Batches{{Samples{0, 1, 2, 0, 1}[rank]}});
  }
  CHECK(parts(13, 4, 3, 0) == Batches{{0, 1, 2, 3}, {4}});
  CHECK(parts(13, 4, 3, 1) == Batches{{5, 6, 7, 8}, {9}});
  CHECK(parts(13, 4, 3, 2) == Batches{{10, 11, 12, 0}, {1}});
  CHECK(parts(0, 4, 3, 2).empty());

  // Of batch k of all ranks together.
  const auto gathered = [](std::int64_t n, std::int64_t b, int world, std::int64_t k) {
    std::int64_t all = 0;
    for (int rank = 0; rank < world; ++rank) {
      all += peal::data::unpadded(n, b, {rank, world}, k);
    }
    return all;
  };
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(peal::data::unpadded(12, 12, {rank, 5}, 0) == (rank < 4 ? 3 : 0));
  }
  CHECK(gathered(10, 4, 3, 0) == 10);
  CHECK(peal::data::unpadded(10, 4, {2, 3}, 0) == 2);
  CHECK(gathered(7, 4, 4, 0) == 8 - 1);
  CHECK(gathered(3, 4, 5, 0) == 5 - 2);
  CHECK(gathered(1, 4, 4, 0) == 4 - 3);
  CHECK(gathered(13, 4, 3, 0) == 11);
  CHECK(gathered(13, 4, 3, 1) == 2);
  CHECK(gathered(100, 30, 3, 0) == 90);
  CHECK(gathered(100, 30, 3, 1) == 10);
  CHECK(gathered(100, 30, 3, 2) == 0);
}

TEST_CASE("what is gathered by rank and cut to the unpadded is every sample once, in order") {
  for (std::int64_t n = 0; n < 40; ++n) {
    for (std::int64_t b = 1; b < 7; ++b) {
      for (int world = 1; world < 7; ++world) {
        std::vector<Batches> by_rank;
        for (int rank = 0; rank < world; ++rank) {
          by_rank.push_back(peal::data::contiguous_batches(up_to(n), b, {rank, world}));
          REQUIRE(by_rank[static_cast<std::size_t>(rank)].size() == by_rank[0].size());
        }
        Samples seen;
        for (std::size_t k = 0; k < by_rank[0].size(); ++k) {
          Samples gathered;
          std::int64_t real = 0;
          for (int rank = 0; rank < world; ++rank) {
            const Samples& batch = by_rank[static_cast<std::size_t>(rank)][k];
            gathered.insert(gathered.end(), batch.begin(), batch.end());
            real += peal::data::unpadded(n, b, {rank, world}, std::int64_t(k));
          }
          seen.insert(seen.end(), gathered.begin(), gathered.begin() + real);
        }
        std::sort(seen.begin(), seen.end());
        REQUIRE(seen == up_to(n));
      }
    }
  }
}

TEST_CASE("batches by length hold samples of like length, longest first, near their place") {
  Samples lengths;
  for (std::int64_t i = 0; i < 100; ++i) lengths.push_back(i * 37 % 100);
  const Batches batches = peal::data::by_length(up_to(100), lengths, 4, 5);
  CHECK(batches.size() == 25);
  Samples seen;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    for (const std::int64_t sample : batches[k]) {
      CHECK(sample / 20 == static_cast<std::int64_t>(k) / 5);  // it stays in its window
      if (seen.size() % 20 != 0) {
        CHECK(lengths[static_cast<std::size_t>(seen.back())] >=
              lengths[static_cast<std::size_t>(sample)]);
      }
      seen.push_back(sample);
    }
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == up_to(100));
  CHECK(peal::data::by_length(up_to(3), Samples{5, 9, 5}, 2) == Batches{{1, 0}, {2}});
  CHECK_THROWS_WITH_AS(peal::data::by_length(Samples{7}, lengths = {1, 2}, 2),
                       "[data] by_length: sample 7 has no length, there are 2", peal::Error);
}

TEST_CASE("batches that are not what batch_shard is told they are, are errors") {
  const auto shard_of = [](const Batches& whole, std::int64_t batch_size) {
    return [&whole, batch_size] { peal::data::batch_shard(whole, batch_size, {1, 2}); };
  };
  const Batches whole = peal::data::in_batches(up_to(138), 64);
  CHECK_THROWS_WITH_AS(shard_of(whole, 0)(),
                       "[data] batch_shard: expected a batch_size of at least 1, got 0",
                       peal::Error);
  CHECK_THROWS_WITH_AS(shard_of(whole, 32)(),
                       "[data] batch_shard: expected batches of 32 samples, got 64 in batch 0 of 3",
                       peal::Error);
  CHECK_THROWS_WITH_AS(shard_of(whole, 128)(),
                       "[data] batch_shard: expected batches of 128 samples, got 64 in batch 0 of "
                       "3",
                       peal::Error);
  const Batches one{{1, 2, 3}}, gap{{1, 2}, {}, {3, 4}}, empty{{1, 2}, {}};
  CHECK_THROWS_WITH_AS(shard_of(one, 2)(),
                       "[data] batch_shard: expected batches of 2 samples, got 3 in batch 0 of 1",
                       peal::Error);
  CHECK_THROWS_AS(shard_of(gap, 2)(), peal::Error);
  CHECK_THROWS_WITH_AS(shard_of(empty, 2)(),
                       "[data] batch_shard: expected batches of 2 samples, got 0 in batch 1 of 2",
                       peal::Error);
  CHECK(peal::data::batch_shard({}, 2, {1, 2}).empty());
}
