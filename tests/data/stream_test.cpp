// SPDX-License-Identifier: Apache-2.0
// Streams, whose length nobody knows: Accelerate's cases of IterableDatasetShard, and properties
// over many lengths; and the parts of a source that readers share out.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/stream.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

using peal::data::reader_parts;
using peal::data::StreamOptions;
using peal::data::StreamShard;
using Samples = std::vector<std::int64_t>;

namespace {

// What a rank gets of a stream of 0..n-1, and how often the stream was asked.
Samples read(std::int64_t n, const StreamOptions& options, int* asked = nullptr) {
  std::int64_t next = 0;
  int calls = 0;
  StreamShard<std::int64_t> shard(
      [&]() -> std::optional<std::int64_t> {
        ++calls;
        return next < n ? std::optional(next++) : std::nullopt;
      },
      options);
  Samples all;
  while (const auto sample = shard.next()) all.push_back(*sample);
  CHECK(!shard.next());  // the end stays the end
  if (asked != nullptr) *asked = calls;
  return all;
}

}  // namespace

TEST_CASE("the batches of a stream go round, or are split, as Accelerate has it") {
  const auto of = [](int rank, bool split, bool drop_last = false) {
    return read(10, {.batch_size = 4, .place = {rank, 2}, .split = split, .drop_last = drop_last});
  };
  CHECK(of(0, false) == Samples{0, 1, 2, 3, 8, 9, 0, 1});
  CHECK(of(1, false) == Samples{4, 5, 6, 7, 2, 3, 4, 5});
  CHECK(of(0, true) == Samples{0, 1, 4, 5, 8, 9});
  CHECK(of(1, true) == Samples{2, 3, 6, 7, 0, 1});
  CHECK(of(0, false, true) == Samples{0, 1, 2, 3});
  CHECK(of(1, true, true) == Samples{2, 3, 6, 7});
  CHECK(read(2, {.batch_size = 4, .place = {1, 2}}) == Samples{0, 1, 0, 1});
  CHECK(read(3, {.batch_size = 4, .place = {0, 2}}) == Samples{0, 1, 2, 0});
  CHECK(read(3, {.batch_size = 4, .place = {1, 2}}) == Samples{1, 2, 0, 1});
  CHECK(read(0, {.batch_size = 4, .place = {1, 2}}).empty());
}

TEST_CASE("ranks have equally many samples of a stream, and each is somebody's") {
  for (std::int64_t n = 0; n < 30; ++n) {
    for (std::int64_t b = 1; b < 5; ++b) {
      for (int world = 1; world < 5; ++world) {
        for (const bool split : {false, true}) {
          Samples seen;
          std::size_t each = 0;
          for (int rank = 0; rank < world; ++rank) {
            int asked = 0;
            const Samples mine = read(
                n, {.batch_size = split ? b * world : b, .place = {rank, world}, .split = split},
                &asked);
            if (rank == 0) each = mine.size();
            REQUIRE(mine.size() == each);
            REQUIRE(asked == n + 1);  // an end is asked for once
            seen.insert(seen.end(), mine.begin(), mine.end());
          }
          std::sort(seen.begin(), seen.end());
          seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
          Samples all(static_cast<std::size_t>(n));
          std::iota(all.begin(), all.end(), std::int64_t{0});
          REQUIRE(seen == all);
        }
      }
    }
  }
}

TEST_CASE("with exact every sample of a stream is somebody's, once") {
  // Accelerate's gather_for_metrics: 30 samples in batches of 4.
  CHECK(read(30, {.batch_size = 4, .place = {0, 2}, .exact = true}).size() == 16);
  CHECK(read(30, {.batch_size = 4, .place = {1, 2}, .exact = true}).size() == 14);
  CHECK(read(9, {.batch_size = 4, .place = {1, 2}, .exact = true}) == Samples{4, 5, 6, 7});
  CHECK(read(9, {.batch_size = 4, .place = {0, 2}, .split = true, .exact = true}) ==
        Samples{0, 1, 4, 5, 8});
  for (std::int64_t n = 0; n < 30; ++n) {
    for (std::int64_t b = 1; b < 5; ++b) {
      for (int world = 1; world < 5; ++world) {
        for (const bool split : {false, true}) {
          Samples seen;
          for (int rank = 0; rank < world; ++rank) {
            const Samples mine = read(n, {.batch_size = split ? b * world : b,
                                          .place = {rank, world},
                                          .split = split,
                                          .exact = true});
            seen.insert(seen.end(), mine.begin(), mine.end());
          }
          std::sort(seen.begin(), seen.end());
          Samples all(static_cast<std::size_t>(n));
          std::iota(all.begin(), all.end(), std::int64_t{0});
          REQUIRE(seen == all);
        }
      }
    }
  }
}

TEST_CASE("a stream is taken up where a shard left it, in its world or another") {
  const auto source = [](std::int64_t n) {
    return [n, next = std::int64_t{0}]() mutable -> std::optional<std::int64_t> {
      return next < n ? std::optional(next++) : std::nullopt;
    };
  };
  using Shard = StreamShard<std::int64_t>;
  const auto take = [](Shard& shard, std::int64_t most) {
    Samples all;
    for (std::int64_t k = 0; k < most; ++k) {
      const auto sample = shard.next();
      if (!sample) break;
      all.push_back(*sample);
    }
    return all;
  };
  constexpr std::int64_t every = 1000;
  for (const bool split : {false, true}) {
    for (const bool exact : {false, true}) {
      for (const std::int64_t n : {0, 3, 23, 24}) {
        for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 2), std::pair(2, 2)}) {
          const auto options = [&](int rank, int world, std::int64_t each) {
            return StreamOptions{.batch_size = split ? each * world : each,
                                 .place = {rank, world},
                                 .split = split,
                                 .exact = exact};
          };
          for (std::int64_t at = 0; at <= 12; ++at) {  // samples of each rank
            Samples seen;
            peal::NamedTensors state;
            for (int rank = 0; rank < before; ++rank) {
              Shard first(source(n), options(rank, before, 2)),
                  second(source(n), options(rank, before, 2)),
                  whole(source(n), options(rank, before, 2));
              const Samples mine = take(first, at);
              seen.insert(seen.end(), mine.begin(), mine.end());
              if (rank == 0) state = first.state_dict();
              second.load_state_dict(first.state_dict());
              Samples all = mine;
              const Samples rest = take(second, every);
              all.insert(all.end(), rest.begin(), rest.end());
              REQUIRE(all == take(whole, every));
            }
            if (at % 2 != 0) continue;
            for (int rank = 0; rank < after; ++rank) {
              Shard shard(source(n), options(rank, after, 1));
              shard.load_state_dict(state);
              const Samples mine = take(shard, every);
              seen.insert(seen.end(), mine.begin(), mine.end());
            }
            std::sort(seen.begin(), seen.end());
            if (!exact) seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
            Samples all(static_cast<std::size_t>(n));
            std::iota(all.begin(), all.end(), std::int64_t{0});
            REQUIRE(seen == all);
          }
        }
      }
    }
  }
  Shard open(source(9), {.batch_size = 2, .place = {0, 2}});
  open.next();
  Shard other(source(9), {.batch_size = 2, .place = {0, 3}});
  CHECK_THROWS_WITH_AS(other.load_state_dict(open.state_dict()),
                       "[data] stream: it was left within a batch, which another world or "
                       "batch_size does not have; save its state after whole batches",
                       peal::Error);
  CHECK_THROWS_WITH_AS(open.load_state_dict(open.state_dict()),
                       "[data] stream: a shard takes up a stream at its start, and this one has "
                       "read 4 samples",
                       peal::Error);
  take(open, 3);
  Shard shorter(source(5), {.batch_size = 2, .place = {0, 2}});
  CHECK_THROWS_WITH_AS(shorter.load_state_dict(open.state_dict()),
                       "[data] stream: it ended after 5 samples, and it had been left after 8",
                       peal::Error);
}

TEST_CASE("a source that throws once loses no sample, and moves none to another rank") {
  for (const bool saved : {false, true}) {
    for (std::int64_t at = 0; at < 12; ++at) {  // the sample before which it throws
      Samples all;
      for (int rank = 0; rank < 2; ++rank) {
        const auto source = [&](bool throws) {
          return [at, throws, next = std::int64_t{0}]() mutable -> std::optional<std::int64_t> {
            if (next == at && std::exchange(throws, false)) throw peal::Error("not now");
            return next < 12 ? std::optional(next++) : std::nullopt;
          };
        };
        const StreamOptions options{.batch_size = 3, .place = {rank, 2}};
        StreamShard<std::int64_t> shard(source(true), options), other(source(false), options);
        bool told = false;
        for (int k = 0; k < 6; ++k) {
          try {
            all.push_back(*(told && saved ? other : shard).next());
          } catch (const peal::Error&) {
            told = true;
            other.load_state_dict(shard.state_dict());
            --k;
          }
        }
        CHECK(told);
      }
      CHECK(all == Samples{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11});
    }
  }
}

TEST_CASE("a source that throws while a state is taken up loses no sample, and gives none twice") {
  using Shard = StreamShard<std::int64_t>;
  enum class Then { next, load, save };  // what the shard does after it
  for (const Then then : {Then::next, Then::load, Then::save}) {
    for (std::int64_t taken = 1; taken < 6; ++taken) {
      for (std::int64_t at = 0; at < 12; ++at) {  // the sample before which it throws
        const auto source = [&](bool throws) {
          return [at, throws, next = std::int64_t{0}]() mutable -> std::optional<std::int64_t> {
            if (next == at && std::exchange(throws, false)) throw peal::Error("not now");
            return next < 12 ? std::optional(next++) : std::nullopt;
          };
        };
        const StreamOptions options{.batch_size = 3, .place = {1, 2}};
        Shard whole(source(false), options), left(source(false), options);
        Samples expected, got;
        for (std::int64_t k = 0; k < 6; ++k) {
          const std::int64_t sample = whole.next().value();
          if (k < taken) left.next();
          if (k >= taken) expected.push_back(sample);
        }
        Shard shard(source(true), options), saved(source(false), options);
        const peal::NamedTensors state = left.state_dict();
        bool told = false;
        try {
          shard.load_state_dict(state);
        } catch (const peal::Error&) {
          told = true;
          if (then == Then::load) shard.load_state_dict(state);
          if (then == Then::save) saved.load_state_dict(shard.state_dict());
        }
        Shard& rest = then == Then::save && told ? saved : shard;
        while (got.size() < expected.size()) {
          try {
            got.push_back(rest.next().value());
          } catch (const peal::Error&) {
            REQUIRE(!std::exchange(told, true));
          }
        }
        CAPTURE(taken);
        CAPTURE(at);
        CHECK(got == expected);
        CHECK(!rest.next());
      }
    }
  }
}

TEST_CASE("a stream that is shorter than what a state left out says so until it is another") {
  const auto source = [](std::int64_t n) {
    return [n, next = std::int64_t{0}]() mutable -> std::optional<std::int64_t> {
      return next < n ? std::optional(next++) : std::nullopt;
    };
  };
  StreamShard<std::int64_t> longer(source(9), {.batch_size = 4}), shorter(source(3), {});
  for (int k = 0; k < 4; ++k) longer.next();
  constexpr const char* text =
      "[data] stream: it ended after 3 samples, and it had been left after 4";
  CHECK_THROWS_WITH_AS(shorter.load_state_dict(longer.state_dict()), text, peal::Error);
  CHECK_THROWS_WITH_AS(shorter.next(), text, peal::Error);
}

TEST_CASE("the parts of a source are a partition over ranks and workers") {
  for (const int world : {1, 2, 3}) {
    for (const int workers : {0, 1, 4}) {
      Samples seen;
      for (int rank = 0; rank < world; ++rank) {
        for (int worker = 0; worker < std::max(workers, 1); ++worker) {
          const Samples mine = reader_parts(7, {rank, world}, worker, workers);
          REQUIRE(std::is_sorted(mine.begin(), mine.end()));
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
      }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == Samples{0, 1, 2, 3, 4, 5, 6});
    }
  }
  CHECK_THROWS_WITH_AS(reader_parts(7, {0, 2}, 3, 3),
                       "[data] reader_parts: expected a worker from 0 to 2, got 3", peal::Error);
}

TEST_CASE("what a stream refuses") {
  CHECK_THROWS_WITH_AS(read(4, {.batch_size = 4, .place = {0, 3}, .split = true}),
                       "[data] stream: batches of 4 samples cannot be split evenly among 3 ranks",
                       peal::Error);
  CHECK_THROWS_WITH_AS(read(4, {.batch_size = 0}),
                       "[data] stream: expected a batch_size of at least 1, got 0", peal::Error);
  CHECK_THROWS_WITH_AS(read(4, {.drop_last = true, .exact = true}),
                       "[data] stream: exact sees every sample once, drop_last leaves some out: "
                       "choose one",
                       peal::Error);
  CHECK_THROWS_WITH_AS(StreamShard<int>(nullptr, {}), "[data] stream: expected a source, got none",
                       peal::Error);
}
