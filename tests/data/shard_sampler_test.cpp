// SPDX-License-Identifier: Apache-2.0
// Orders of samples in shards: bijections, near to near, and dealt so that what one world has seen
// and what any other sees after it are all samples, each once.
#include <doctest/doctest.h>
#include <peal/data/shards/shard_paths.h>
#include <peal/data/shards/shard_sampler.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

using peal::Place;
using peal::data::Order;
using peal::data::shard_order;
using peal::data::ShardSampler;
using peal::data::ShardSamplerOptions;
using peal::testing::check_has;
using peal::testing::error_of;
using Samples = std::vector<std::int64_t>;

namespace {

Samples up_to(std::int64_t size) {
  Samples all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

Samples sorted(Samples all) {
  std::sort(all.begin(), all.end());
  return all;
}

// n samples in shards of other sizes, an empty one among them.
Samples sizes_of(std::int64_t n) { return {n / 3, 0, n / 2 - n / 3, n - n / 2}; }

}  // namespace

TEST_CASE("an order of shards has every sample once, for all small sizes and windows") {
  for (std::int64_t n = 0; n <= 200; ++n) {
    for (const std::int64_t window : {1, 2, 3, 10, 64, 1000}) {
      for (const std::int64_t epoch : {0, 1}) {
        const Order order = shard_order(sizes_of(n), {.window = window, .seed = 3}, epoch);
        REQUIRE(sorted(order.to_vector()) == up_to(n));
      }
    }
  }
  const Samples sizes{5, 7, 0, 1};
  CHECK(shard_order(sizes, {.shuffle = false}, 0).to_vector() == up_to(13));
}

TEST_CASE("samples stay within a window and a half, and are mixed within it") {
  const Samples sizes(40, 250);
  const std::int64_t window = 400, n = 10'000;
  // A window of 1 leaves the sequence as it is.
  const Samples sequence = shard_order(sizes, {.window = 1, .seed = 9}, 2).to_vector();
  const Samples order = shard_order(sizes, {.window = window, .seed = 9}, 2).to_vector();
  Samples place_of(static_cast<std::size_t>(n));
  for (std::size_t k = 0; k < sequence.size(); ++k) {
    place_of[static_cast<std::size_t>(sequence[k])] = static_cast<std::int64_t>(k);
  }
  std::int64_t sum = 0, across = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto at = static_cast<std::int64_t>(k);
    const std::int64_t from = place_of[static_cast<std::size_t>(order[k])];
    REQUIRE(std::abs(at - from) < window + window / 2);
    sum += std::abs(at - from);
    across += at / window != from / window;
  }
  // Two uniform moves within a window: 133 each by themselves; and no border is kept.
  CHECK(sum / n > window / 4);
  CHECK(across > n / 4);
  // Shards come in another order, whole but for the windows at their ends.
  CHECK(sequence != up_to(n));
  for (std::size_t shard = 0; shard < sizes.size(); ++shard) {
    const auto begin = sequence.begin() + static_cast<std::ptrdiff_t>(250 * shard);
    REQUIRE(std::is_sorted(begin, begin + 250));
    REQUIRE(begin[249] - begin[0] == 249);
  }
  CHECK(order != shard_order(sizes, {.window = window, .seed = 9}, 3).to_vector());
  CHECK(order != shard_order(sizes, {.window = window, .seed = 8}, 2).to_vector());
  CHECK(order == shard_order(sizes, {.window = window, .seed = 9}, 2).to_vector());
}

// The proof by exhaustion, in two halves. However many samples each of up to 8 ranks has taken,
// what all have seen are the first ones of the order, as many as the state says, each once. And
// from every such place on, up to 8 ranks see what is left of it, each once, and at their end fewer
// of the first ones again than there are ranks. So any world goes on where any other left.
TEST_CASE("an epoch of any size is left anywhere in one world and goes on in another") {
  constexpr std::int64_t most = 200;
  std::int64_t cuts = 0;
  for (std::int64_t n = 1; n <= most; ++n) {
    // All orders are bijections (above), so places are dealt; of some sizes shuffled samples.
    const ShardSamplerOptions how{
        .shuffle = n % 8 == 0, .window = 20, .seed = 5, .exact = n % 2 == 0};
    const Samples sizes = sizes_of(n), all = ShardSampler(sizes, {0, 1}, how).indices();
    REQUIRE(sorted(all) == up_to(n));
    Samples place_of(all.size());
    for (std::size_t k = 0; k < all.size(); ++k) {
      place_of[static_cast<std::size_t>(all[k])] = static_cast<std::int64_t>(k);
    }
    std::vector<bool> seen(all.size());
    const auto see = [&](std::int64_t sample) {
      const auto place = static_cast<std::size_t>(place_of[static_cast<std::size_t>(sample)]);
      return !seen[place] && (seen[place] = true);
    };
    for (int world = 1; world <= 8; ++world) {
      const auto sampler_of = [&](int rank) { return ShardSampler(sizes, {rank, world}, how); };
      // The first half.
      std::vector<Samples> of_rank;
      for (int rank = 0; rank < world; ++rank) of_rank.push_back(sampler_of(rank).indices());
      const ShardSampler first = sampler_of(0);
      seen.assign(all.size(), false);
      for (std::int64_t taken = 1; taken <= first.size(); ++taken) {
        const std::int64_t before = first.consumed_after(taken - 1);
        const std::int64_t after = first.consumed_after(taken);
        for (int rank = 0; rank < world; ++rank) {
          if (before + rank >= after) continue;  // padding, or of an exact epoch nothing
          REQUIRE(
              see(of_rank[static_cast<std::size_t>(rank)][static_cast<std::size_t>(taken - 1)]));
        }
        REQUIRE(std::find(seen.begin(), seen.end(), false) - seen.begin() == after);
        REQUIRE(std::find(seen.begin() + after, seen.end(), true) == seen.end());
        ++cuts;
      }
      REQUIRE(first.consumed_after(first.size()) == n);
      // The second.
      std::vector<ShardSampler> samplers;
      for (int rank = 0; rank < world; ++rank) samplers.push_back(sampler_of(rank));
      for (std::int64_t consumed = 0; consumed < n; ++consumed) {
        seen.assign(all.size(), false);
        std::int64_t again = 0, fresh = 0;
        for (ShardSampler& sampler : samplers) {
          sampler.resume(0, consumed);
          const Order rest = sampler.order();
          for (std::int64_t k = 0; k < rest.size(); ++k) {
            if (sampler.place(k) < 0) {
              again += 1;
            } else if (see(rest[k])) {
              fresh += 1;
            }
          }
        }
        const auto begin = seen.begin() + consumed;
        const bool rest_alone = std::find(begin, seen.end(), false) == seen.end() &&
                                std::find(seen.begin(), begin, true) == begin;
        if (!rest_alone || fresh != n - consumed || again >= world || (how.exact && again > 0)) {
          FAIL("n ", n, ", ", world, " ranks from ", consumed);
        }
        ++cuts;
      }
    }
  }
  CHECK(cuts > 200'000);
}

TEST_CASE("wrong sizes, windows and places are named") {
  check_has(error_of([] { ShardSampler({3, -1}, {}); }), "expected sizes of at least 0, got -1");
  check_has(error_of([] { ShardSampler({3}, {}, {.window = 0}); }),
            "expected a window of at least 1, got 0");
  check_has(error_of([] { ShardSampler({3}, {2, 2}); }), "rank");
}

TEST_CASE("names of shards are read as people write them") {
  using peal::data::shard_paths;
  using Names = std::vector<std::string>;
  CHECK(shard_paths("a.tar") == Names{"a.tar"});
  CHECK(shard_paths("t-{08..11}.tar") == Names{"t-08.tar", "t-09.tar", "t-10.tar", "t-11.tar"});
  CHECK(shard_paths("{a,b}-{0..1}") == Names{"a-0", "a-1", "b-0", "b-1"});
  CHECK(shard_paths("x{7..7}") == Names{"x7"});
  CHECK(shard_paths("{9223372036854775806..9223372036854775807}") ==
        Names{"9223372036854775806", "9223372036854775807"});
  CHECK(shard_paths("pipe:awk '{print}' a{0..1}") ==
        Names{"pipe:awk '{print}' a0", "pipe:awk '{print}' a1"});
  check_has(error_of([] { shard_paths("a{0..3"); }), "'a{0..3': a brace is left open");
  check_has(error_of([] { shard_paths("a{}"); }), "expected something in {}");
  check_has(error_of([] { shard_paths("{3..1}"); }), "expected a range of numbers");
  check_has(error_of([] { shard_paths("{a..c}"); }), "expected a range of numbers");
  check_has(error_of([] { shard_paths("{0..99999999}"); }), "at most 1000000 names");
  check_has(error_of([] { shard_paths("{0..999}{0..999}{0..9}"); }), "at most 1000000 names");
}
