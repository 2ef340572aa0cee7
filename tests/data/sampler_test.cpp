// SPDX-License-Identifier: Apache-2.0
// The shard as a plan: properties over thousands of (size, world), and PyTorch's results on small
// cases.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/permutation.h>
#include <peal/data/sampler.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

using peal::data::DistributedSampler;
using peal::data::Permutation;
using peal::data::shard;
using peal::data::shard_size;
using peal::data::ShardOptions;
using Samples = std::vector<std::int64_t>;

namespace {

// What all ranks see, in the order in which they take turns.
Samples interleaved(std::int64_t size, int world, const ShardOptions& options) {
  std::vector<Samples> shards;
  std::size_t longest = 0;
  for (int rank = 0; rank < world; ++rank) {
    shards.push_back(shard(size, world, rank, options));
    longest = std::max(longest, shards.back().size());
  }
  Samples all;
  for (std::size_t k = 0; k < longest; ++k) {
    for (const Samples& mine : shards) {
      if (k < mine.size()) all.push_back(mine[k]);
    }
  }
  return all;
}

bool is_permutation_of_all(Samples samples, std::int64_t size) {
  std::sort(samples.begin(), samples.end());
  Samples all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return samples == all;
}

Samples first(const Samples& samples, std::int64_t count) {
  return {samples.begin(), samples.begin() + count};
}

template <class F>
void for_sizes_and_worlds(F f) {
  for (std::int64_t size = 0; size <= 65; ++size) {
    for (int world = 1; world <= 40; ++world) f(size, world);
  }
  for (const std::int64_t size : {1000, 997, 4096}) {
    for (const int world : {1, 2, 3, 7, 16, 64, 1000, 1500}) f(size, world);
  }
}

}  // namespace

TEST_CASE("small cases are those of torch.utils.data.DistributedSampler") {
  const ShardOptions plain{.shuffle = false};
  CHECK(shard(10, 3, 0, plain) == Samples{0, 3, 6, 9});
  CHECK(shard(10, 3, 1, plain) == Samples{1, 4, 7, 0});
  CHECK(shard(10, 3, 2, plain) == Samples{2, 5, 8, 1});
  CHECK(shard(2, 5, 4, plain) == Samples{0});  // padded more than once around
  CHECK(shard(3, 8, 7, plain) == Samples{1});
  CHECK(shard(0, 3, 1, plain).empty());
  const ShardOptions drop{.shuffle = false, .drop_last = true};
  CHECK(shard(10, 3, 0, drop) == Samples{0, 3, 6});
  CHECK(shard(10, 3, 2, drop) == Samples{2, 5, 8});
  CHECK(shard(9, 3, 2, drop) == Samples{2, 5, 8});
  CHECK(shard(2, 5, 0, drop).empty());
  const ShardOptions exact{.shuffle = false, .exact = true};
  CHECK(shard(10, 3, 0, exact) == Samples{0, 3, 6, 9});
  CHECK(shard(10, 3, 2, exact) == Samples{2, 5, 8});
  CHECK(shard(2, 5, 4, exact).empty());
}

TEST_CASE("all ranks together see the order, padded, cut or exact") {
  int cases = 0;
  for_sizes_and_worlds([&](std::int64_t size, int world) {
    CAPTURE(size);
    CAPTURE(world);
    const Samples order = shard(size, 1, 0, {.seed = 7, .epoch = 3});
    REQUIRE(is_permutation_of_all(order, size));

    const Samples padded = interleaved(size, world, {.seed = 7, .epoch = 3});
    const std::int64_t each = (size + world - 1) / world;
    REQUIRE(std::ssize(padded) == each * world);
    Samples around;
    for (std::size_t i = 0; i < padded.size(); ++i) around.push_back(order[i % order.size()]);
    REQUIRE(padded == around);

    // PyTorch's formula: ceil((size - world) / world) where world does not divide the size.
    const std::int64_t kept = size % world == 0 ? size / world : (size - world + world - 1) / world;
    const Samples cut = interleaved(size, world, {.seed = 7, .epoch = 3, .drop_last = true});
    REQUIRE(cut == first(order, kept * world));

    const Samples exact = interleaved(size, world, {.seed = 7, .epoch = 3, .exact = true});
    REQUIRE(exact == order);
    for (const ShardOptions& options :
         {ShardOptions{}, ShardOptions{.drop_last = true}, ShardOptions{.exact = true}}) {
      for (const int rank : {0, world / 2, world - 1}) {
        REQUIRE(shard_size(size, world, rank, options) ==
                std::ssize(shard(size, world, rank, options)));
      }
    }
    const auto most = shard_size(size, world, 0, {.exact = true});
    REQUIRE(most - shard_size(size, world, world - 1, {.exact = true}) <= 1);
    ++cases;
  });
  MESSAGE(cases, " pairs of size and world");
}

TEST_CASE("the same world takes up an epoch exactly where it left it") {
  for_sizes_and_worlds([&](std::int64_t size, int world) {
    if (size > 100) return;
    for (const bool drop_last : {false, true}) {
      const ShardOptions whole{.seed = 1, .drop_last = drop_last};
      const Samples without_break = interleaved(size, world, whole);
      for (const std::int64_t steps : {0, 1, 2, 5}) {
        ShardOptions rest = whole;
        rest.consumed = steps * world;
        if (rest.consumed > std::ssize(without_break)) continue;
        Samples with_break = first(without_break, rest.consumed);
        const Samples more = interleaved(size, world, rest);
        with_break.insert(with_break.end(), more.begin(), more.end());
        CAPTURE(size);
        CAPTURE(world);
        CAPTURE(steps);
        REQUIRE(with_break == without_break);
      }
    }
  });
}

TEST_CASE("an epoch goes on in other world sizes: no sample twice, none missing") {
  std::mt19937 random(5);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int64_t size = up_to(300);
    Samples seen;
    std::int64_t consumed = 0;
    int restarts = 0;
    while (consumed < size) {
      const int world = 1 + static_cast<int>(up_to(trial % 2 ? 7 : 40));
      std::int64_t steps = 0, counted = 0;
      std::vector<DistributedSampler> ranks;
      for (int rank = 0; rank < world; ++rank) {
        ranks.emplace_back(size, world, rank, ShardOptions{.seed = 11, .exact = true});
        ranks.back().resume(2, consumed);
        if (rank == 0) steps = up_to(ranks[0].size());
        const Samples mine = ranks.back().indices();
        const std::int64_t taken = std::min(steps, std::ssize(mine));
        seen.insert(seen.end(), mine.begin(), mine.begin() + taken);
        if (rank == 0) counted = ranks[0].consumed_after(taken);
      }
      REQUIRE(counted == std::ssize(seen));
      consumed = counted;
      ++restarts;
    }
    CAPTURE(size);
    CAPTURE(restarts);
    REQUIRE(is_permutation_of_all(seen, size));
  }
}

TEST_CASE("global batches do not depend on the world size") {
  const std::int64_t size = 240, global_batch = 24;
  const auto batch_of = [&](int world, std::int64_t step) {
    Samples batch;
    for (int rank = 0; rank < world; ++rank) {
      const Samples mine = shard(size, world, rank, {.seed = 3});
      const std::int64_t each = global_batch / world;
      batch.insert(batch.end(), mine.begin() + step * each, mine.begin() + (step + 1) * each);
    }
    std::sort(batch.begin(), batch.end());
    return batch;
  };
  for (const int world : {2, 3, 4, 6, 8}) {
    for (std::int64_t step = 0; step < size / global_batch; ++step) {
      CHECK(batch_of(world, step) == batch_of(1, step));
    }
  }
}

TEST_CASE("the order is drawn from seed + epoch") {
  DistributedSampler sampler(1000, 4, 1, {.seed = 5});
  const Samples epoch0 = sampler.indices();
  sampler.set_epoch(1);
  const Samples epoch1 = sampler.indices();
  CHECK(epoch0 != epoch1);
  CHECK(epoch1 == shard(1000, 4, 1, {.seed = 6}));
  sampler.resume(0, 400);
  CHECK(sampler.size() == 150);
  sampler.set_epoch(0);
  CHECK(sampler.indices() == epoch0);
}

TEST_CASE("a sampler's place is a state that another takes up") {
  static_assert(peal::Stateful<DistributedSampler>);
  DistributedSampler sampler(100, 2, 1, {.seed = 5}), other(100, 2, 1, {.seed = 5});
  sampler.resume(3, 40);
  other.load_state_dict(sampler.state_dict());
  CHECK(other.epoch() == 3);
  CHECK(other.indices() == sampler.indices());
  CHECK(other.size() == 30);
  DistributedSampler unlike(100, 2, 1, {.seed = 6});
  CHECK_THROWS_WITH_AS(unlike.load_state_dict(sampler.state_dict()),
                       "DistributedSampler: load_state_dict: 1 difference\n  seed: expected 6, as "
                       "of this sampler, got 5: its order is another, and some samples would come "
                       "twice",
                       peal::Error);
  const peal::NamedTensors before = sampler.state_dict();  // states without a seed are taken
  unlike.load_state_dict({before[0], before[1]});
  CHECK(unlike.epoch() == 3);
  CHECK_THROWS_WITH_AS(other.load_state_dict({}),
                       "DistributedSampler: load_state_dict: 2 differences\n  missing: epoch i64 "
                       "[]\n  missing: consumed i64 []",
                       peal::Error);
}

TEST_CASE("every permutation of four is about equally likely") {
  std::map<Samples, int> counts;
  const int draws = 24000;
  for (std::uint64_t seed = 0; seed < draws; ++seed) ++counts[shard(4, 1, 0, {.seed = seed})];
  REQUIRE(counts.size() == 24);
  double chi_squared = 0;
  for (const auto& [order, count] : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_squared < 49.7);  // 23 degrees of freedom, p = 0.001; the draws are fixed
}

TEST_CASE("a permutation of any size, element by element") {
  for (std::int64_t size = 0; size <= 300; ++size) {
    const Permutation permutation(size, 5);
    Samples all;
    for (std::int64_t i = 0; i < size; ++i) all.push_back(permutation.at(i));
    CAPTURE(size);
    REQUIRE(is_permutation_of_all(all, size));
  }
  const std::int64_t billion = 1'000'000'000;
  const Permutation one(billion, 1), same(billion, 1), other(billion, 2);
  int moved = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t at = one.at(i * 999'983);
    REQUIRE(at >= 0);
    REQUIRE(at < billion);
    REQUIRE(at == same.at(i * 999'983));
    moved += at != other.at(i * 999'983);
  }
  CHECK(moved >= 999);
  CHECK_THROWS_WITH_AS(Permutation(-1, 0),
                       "[data] permutation: expected a size from 0 to 2^62, got -1", peal::Error);
}

TEST_CASE("an element of a permutation falls anywhere, and not by where its neighbour falls") {
  const std::int64_t size = 1000;
  const int seeds = 20000;
  std::vector<int> first(20), apart(20);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Permutation permutation(size, seed);
    const std::int64_t a = permutation.at(0), b = permutation.at(1);
    ++first[static_cast<std::size_t>(a / 50)];
    ++apart[static_cast<std::size_t>((b - a + size) % size / 50)];
  }
  for (const std::vector<int>& counts : {first, apart}) {
    double chi_squared = 0;
    for (const int count : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    CHECK(chi_squared < 43.8);  // 19 degrees of freedom, p = 0.001; the draws are fixed
  }
}

TEST_CASE("a rank of a huge set draws its own samples alone") {
  const std::int64_t size = peal::data::huge * 1000 + 3;  // 134 GB, as a vector
  const int world = 1 << 30;
  std::vector<std::int64_t> seen;
  for (const int rank : {0, 1, world - 1}) {
    const Samples mine = shard(size, world, rank, {.seed = 3, .epoch = 1});
    REQUIRE(std::ssize(mine) == shard_size(size, world, rank, {}));
    seen.insert(seen.end(), mine.begin(), mine.end());
    CHECK(mine != shard(size, world, rank, {.seed = 3, .epoch = 2}));
    const Samples plain = shard(size, world, rank, {.shuffle = false});
    CHECK(plain[1] == std::int64_t{world} + rank);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(seen.front() >= 0);
  CHECK(seen.back() < size);
}

TEST_CASE("of up to 200 samples and 8 ranks: after any cut, in any world, none twice or missing") {
  std::int64_t cuts = 0;
  for (std::int64_t n = 0; n <= 200; ++n) {
    for (int before = 1; before <= 8; ++before) {
      for (int after = 1; after <= 8; ++after) {
        for (std::int64_t at = 0; at * before <= n + before; ++at) {  // samples of each rank
          std::vector<int> times(static_cast<std::size_t>(n), 0);
          std::int64_t consumed = 0;
          for (int rank = 0; rank < before; ++rank) {
            const auto order =
                peal::data::planned_shard(n, before, rank, {.shuffle = false, .exact = true});
            const std::int64_t taken = std::min(at, order.size());
            for (std::int64_t k = 0; k < taken; ++k) ++times[static_cast<std::size_t>(order[k])];
            consumed += taken;
          }
          for (int rank = 0; rank < after; ++rank) {
            const auto order = peal::data::planned_shard(
                n, after, rank, {.shuffle = false, .exact = true, .consumed = consumed});
            for (std::int64_t k = 0; k < order.size(); ++k) {
              ++times[static_cast<std::size_t>(order[k])];
            }
          }
          for (const int each : times) {
            if (each != 1) FAIL(n, " samples, ", before, " ranks to ", after, " after ", at);
          }
          ++cuts;
        }
      }
    }
  }
  MESSAGE(cuts, " cuts");
}

TEST_CASE("errors name what was expected and what came") {
  const auto throws = [](auto f, const char* text) {
    CHECK_THROWS_WITH_AS(f(), text, peal::Error);
  };
  throws([] { shard(1, 0, 0); }, "[data] sampler: expected a world of at least 1, got 0");
  throws([] { shard(1, 4, 4); }, "[data] sampler: expected a rank from 0 to 3, got 4");
  throws([] { shard(1, 4, -1); }, "[data] sampler: expected a rank from 0 to 3, got -1");
  throws([] { shard(-1, 1, 0); }, "[data] sampler: expected a size of at least 0, got -1");
  throws([] { DistributedSampler(1, 1, 0, {.drop_last = true, .exact = true}); },
         "[data] sampler: exact sees every sample once, drop_last leaves some out: choose one");
  throws([] { DistributedSampler(1, 1, 0).resume(0, -1); },
         "[data] sampler: expected consumed to be at least 0, got -1");
  throws([] { DistributedSampler(4, 2, 0).consumed_after(3); },
         "[data] sampler: expected 0 to 2 samples taken of this rank's epoch, got 3");
}
