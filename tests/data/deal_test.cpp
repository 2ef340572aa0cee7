// SPDX-License-Identifier: Apache-2.0
// Dealing: epochs that are taken up in another way, world and batch size, and what ranks gather put
// in the order of one.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/deal.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

using peal::data::Deal;
using peal::data::Dealt;
using peal::data::LoaderOptions;
using peal::data::Run;
using peal::data::Tail;
using peal::data::Way;

namespace {

constexpr Way ways[] = {Way::batches, Way::split, Way::contiguous, Way::dispatched};

// With `split` of all ranks together, as many a rank.
std::unique_ptr<DataLoader> loader_of(const std::shared_ptr<Drawn>& set, Way way, Place place,
                                      std::int64_t each, bool exact) {
  return std::make_unique<DataLoader>(
      set, LoaderOptions{.batch_size = way == Way::split ? each * place.world : each,
                         .shuffle = true,
                         .shard = place,
                         .way = way,
                         .seed = 9,
                         .exact = exact});
}

Batches batches_of(DataLoader& loader, std::int64_t most) {
  Batches batches;
  for (std::int64_t k = 0; k < most; ++k) {
    const auto batch = loader.next();
    if (!batch) break;
    batches.push_back(batch->x.to_vector<std::int64_t>());
  }
  return batches;
}

}  // namespace

TEST_CASE("what is left after ranks took batches, also of what others had left") {
  const auto text = [](std::int64_t samples, const std::vector<Dealt>& dealt) {
    std::string all;
    for (const Run& run : peal::data::left(samples, dealt)) {
      all += std::to_string(run.begin) + "-" + std::to_string(run.end) + " ";
    }
    return all;
  };
  CHECK(text(20, {}) == "0-20 ");
  CHECK(text(0, {{Way::contiguous, 2, 3, 1}}).empty());
  CHECK(text(20, {{Way::batches, 3, 2, 2}}) == "12-20 ");
  CHECK(text(20, {{Way::split, 6, 2, 2}}) == "12-20 ");
  CHECK(text(20, {{Way::batches, 3, 2, 9}}).empty());
  CHECK(text(20, {{Way::contiguous, 3, 2, 2}}) == "6-10 16-20 ");
  CHECK(text(20, {{Way::contiguous, 3, 2, 2}, {Way::batches, 1, 3, 2}}) == "18-20 ");
  CHECK(text(20, {{Way::contiguous, 3, 2, 2}, {Way::contiguous, 1, 2, 1}}) == "7-10 17-20 ");
  CHECK(text(20, {{Way::contiguous, 3, 2, 2}, {Way::contiguous, 1, 3, 1}}) == "7-9 16-18 19-20 ");
  CHECK(text(13, {{Way::contiguous, 4, 3, 1}}) == "4-5 9-10 ");
  CHECK_THROWS_WITH_AS(text(20, {{Way::batches, 3, 0, 2}}),
                       "[data] deal: expected a rank below its world, got rank 0 of 0",
                       peal::Error);
}

TEST_CASE(
    "every batch of a dealt epoch is a place to go on from: in any world none twice or missing") {
  int resumed = 0;
  for (const Way way : ways) {
    for (const auto& [before, after] :
         {std::pair(4, 3), std::pair(3, 4), std::pair(1, 4), std::pair(4, 1), std::pair(2, 2)}) {
      for (const std::int64_t size : {50, 48, 11}) {
        const auto set = std::make_shared<Drawn>(size);
        const std::int64_t batches = loader_of(set, way, {0, before}, 2, true)->size();
        for (std::int64_t at = 0; at <= batches; ++at) {
          CAPTURE(static_cast<int>(way));
          CAPTURE(peal::concat(before, " ranks to ", after, ", ", size, " samples, batch ", at));
          Samples seen;
          peal::NamedTensors state;
          for (int rank = 0; rank < before; ++rank) {
            const auto loader = loader_of(set, way, {rank, before}, 2, true);
            loader->set_epoch(2);
            const Samples mine = flat(batches_of(*loader, at));
            seen.insert(seen.end(), mine.begin(), mine.end());
            if (rank == 0) state = loader->state_dict();
          }
          // One more batch in the other world, and the rest in the first one.
          for (int rank = 0; rank < after; ++rank) {
            const auto loader = loader_of(set, way, {rank, after}, 3, true);
            loader->load_state_dict(state);
            CHECK(loader->epoch() == 2);
            const Samples mine = flat(batches_of(*loader, 1));
            seen.insert(seen.end(), mine.begin(), mine.end());
          }
          const auto second = loader_of(set, way, {0, after}, 3, true);
          second->load_state_dict(state);
          batches_of(*second, 1);
          state = second->state_dict();
          if (second->epoch() == 2) {  // else that was the end
            for (int rank = 0; rank < before; ++rank) {
              const auto loader = loader_of(set, way, {rank, before}, 2, true);
              loader->load_state_dict(state);
              const Samples mine = flat(epoch_of(*loader));
              seen.insert(seen.end(), mine.begin(), mine.end());
              CHECK(loader->epoch() == 3);
              CHECK(loader->consumed() == 0);
              CHECK(loader->size() == loader_of(set, way, {rank, before}, 2, true)->size());
            }
          }
          REQUIRE(sorted(seen) == up_to(size));
          ++resumed;
        }
      }
    }
  }
  CHECK(resumed > 500);
  MESSAGE(resumed, " places");
}

TEST_CASE("of all sizes, worlds and cuts: what was dealt and what is left is every place, once") {
  std::int64_t cuts = 0;
  for (const Way way : ways) {
    for (std::int64_t n = 0; n <= 40; ++n) {
      for (int world = 1; world <= 8; ++world) {
        for (const std::int64_t each : {1, 2, 5}) {
          const std::int64_t batch_size = way == Way::split ? each * world : each;
          const auto runs_of = [&](int rank) {
            return peal::data::deal(n, {way, batch_size, {rank, world}, Tail::uneven});
          };
          const std::int64_t batches = runs_of(0).size();
          for (std::int64_t at = 0; at <= batches; ++at) {
            std::vector<int> times(static_cast<std::size_t>(n), 0);
            const auto count = [&](const Run& run) {
              for (std::int64_t p = run.begin; p < run.end; ++p) {
                ++times[static_cast<std::size_t>(p)];
              }
            };
            for (int rank = 0; rank < world; ++rank) {
              const auto runs = runs_of(rank);
              for (std::int64_t k = 0; k < std::min(at, runs.size()); ++k) count(runs[k]);
            }
            const std::vector<Dealt> dealt{{way, batch_size, world, at}};
            for (const Run& run : peal::data::left(n, dealt)) count(run);
            REQUIRE(times == std::vector<int>(times.size(), 1));
            ++cuts;
          }
        }
      }
    }
  }
  MESSAGE(cuts, " cuts");
}

TEST_CASE("contiguous parts of Tail::drop: full batches, as many as all can have, and none twice") {
  for (std::int64_t n = 0; n <= 60; ++n) {
    for (int world = 1; world <= 8; ++world) {
      for (const std::int64_t b : {1, 2, 5}) {
        for (std::int64_t at = 0; at <= n / (b * world); ++at) {
          std::vector<int> times(static_cast<std::size_t>(n), 0);
          Deal how{Way::contiguous, b, {0, world}, Tail::drop};
          for (int& rank = how.place.rank; rank < world; ++rank) {
            const auto runs = peal::data::deal(n, how);
            REQUIRE(runs.size() == n / (b * world));
            for (std::int64_t k = 0; k < at; ++k) {
              REQUIRE(runs[k].end - runs[k].begin == b);
              for (std::int64_t p = runs[k].begin; p < runs[k].end; ++p) {
                ++times.at(static_cast<std::size_t>(p));
              }
            }
          }
          const std::vector<Dealt> taken{peal::data::dealt(how, at)};
          for (const Run& run : peal::data::left(n, taken)) {
            for (std::int64_t p = run.begin; p < run.end; ++p) {
              ++times.at(static_cast<std::size_t>(p));
            }
          }
          REQUIRE(times == std::vector<int>(times.size(), 1));
        }
      }
    }
  }
}

TEST_CASE("contiguous parts with drop_last are left, and taken up in another world") {
  const auto set = std::make_shared<Drawn>(50);
  const auto loader = [&](Place place) {
    return std::make_unique<DataLoader>(
        set, peal::data::LoaderOptions{
                 .batch_size = 12, .shard = place, .way = Way::contiguous, .drop_last = true});
  };
  Samples seen;
  for (int rank = 0; rank < 4; ++rank) {
    for (const Samples& batch : epoch_of(*loader({rank, 4}))) {
      CHECK(batch.size() == 12);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  CHECK(sorted(seen) == up_to(48));
  seen.clear();
  const auto first = loader({0, 2}), second = loader({1, 2});
  for (const auto& each : {first.get(), second.get()}) {
    const Samples mine = flat(batches_of(*each, 1));
    seen.insert(seen.end(), mine.begin(), mine.end());
  }
  CHECK(seen.back() == 35);
  const peal::NamedTensors state = first->state_dict();
  const auto alone = loader({0, 1});
  alone->load_state_dict(state);
  const Samples rest = flat(epoch_of(*alone));
  CHECK(rest.size() == 24);
  seen.insert(seen.end(), rest.begin(), rest.end());
  seen = sorted(seen);
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("in its own world a dealt epoch goes on bit for bit, padding too") {
  for (const Way way : ways) {
    for (const std::int64_t size : {1, 11, 13, 50}) {
      for (const bool exact : {false, true}) {
        const auto set = std::make_shared<Drawn>(size);
        for (int rank = 0; rank < 3; ++rank) {
          CAPTURE(static_cast<int>(way));
          CAPTURE(size);
          const auto make = [&] { return loader_of(set, way, {rank, 3}, 2, exact); };
          const Batches whole = epoch_of(*make());
          for (std::size_t at = 0; at <= whole.size(); ++at) {
            const auto first = make(), second = make(), third = make();
            Batches all =
                batches_of(*first, std::ssize(whole) - (std::ssize(whole) - std::int64_t(at)));
            second->load_state_dict(first->state_dict());
            const Batches middle = batches_of(*second, 1);
            all.insert(all.end(), middle.begin(), middle.end());
            if (second->epoch() == 0) {
              third->load_state_dict(second->state_dict());
              const Batches rest = epoch_of(*third);
              all.insert(all.end(), rest.begin(), rest.end());
            }
            REQUIRE(all == whole);
            const auto skipped = make();
            skipped->skip_first_batches(std::int64_t(at));
            CHECK(skipped->size() == std::ssize(whole) - std::int64_t(at));
            CHECK(epoch_of(*skipped) == Batches(whole.begin() + std::ptrdiff_t(at), whole.end()));
          }
        }
      }
    }
  }
}

TEST_CASE("what ranks find, put where its sample stands, is what one finds, for every way") {
  for (const Way way : {Way::samples, Way::batches, Way::split, Way::contiguous, Way::dispatched}) {
    for (const int world : {1, 2, 3, 5}) {
      for (const std::int64_t size : {0, 1, 2, 9, 30, 97, 99}) {
        for (const std::int64_t each : {1, 4, 5}) {
          for (const bool exact : {false, true}) {
            CAPTURE(static_cast<int>(way));
            CAPTURE(peal::concat(size, " samples, ", world, " ranks, batches of ", each));
            const auto set = std::make_shared<Drawn>(size);
            const Samples one = flat(epoch_of(*loader_of(set, Way::samples, {}, each, true)));
            Samples found(static_cast<std::size_t>(size), -1);
            for (int rank = 0; rank < world; ++rank) {
              const auto loader = loader_of(set, way, {rank, world}, each, exact);
              CHECK(loader->places().empty());
              while (const auto batch = loader->next()) {
                const Samples mine = batch->x.to_vector<std::int64_t>(), places = loader->places();
                REQUIRE(places.size() == mine.size());
                for (std::size_t i = 0; i < mine.size(); ++i) {
                  if (places[i] < 0) continue;
                  std::int64_t& at = found.at(static_cast<std::size_t>(places[i]));
                  REQUIRE(at == -1);  // once
                  at = mine[i];
                }
              }
              CHECK(loader->places().empty());
            }
            REQUIRE(found == one);
          }
        }
      }
    }
  }
}

TEST_CASE("places are those of the whole epoch where it was taken up in another world") {
  const auto set = std::make_shared<Drawn>(20);
  const auto first = loader_of(set, Way::contiguous, {0, 2}, 3, true);
  batches_of(*first, 2);
  CHECK(first->places() == Samples{3, 4, 5});
  const auto second = loader_of(set, Way::batches, {1, 3}, 2, false);
  second->load_state_dict(first->state_dict());  // 6 to 9 and 16 to 19
  CHECK(second->next());
  CHECK(second->places() == Samples{8, 9});
  CHECK(second->next());
  CHECK(second->places() == Samples{-1, -1});
  CHECK(!second->next());
  second->resume(0, 1);  // of the whole
  CHECK(second->size() == 3);
  second->load_state_dict(first->state_dict());
  CHECK(second->size() == 2);
  second->set_epoch(0);
  CHECK(second->size() == 4);  // whole
  DataLoader shared(set, {.batch_size = 2, .shard = Place{1, 3}});
  shared.resume(0, 15);
  CHECK(shared.next());
  CHECK(shared.places() == Samples{16, 19});
  const auto sampler = std::make_shared<peal::data::DistributedSampler>(20, 3, 1);
  sampler->resume(0, 15);
  DataLoader sampled(set, sampler, {.batch_size = 1});
  CHECK(sampled.next());
  CHECK(sampled.next());
  CHECK(sampled.places() == Samples{19});
}

TEST_CASE("what dealing refuses") {
  const auto set = std::make_shared<Drawn>(20);
  const auto make = [&](LoaderOptions options) { return [=] { DataLoader(set, options); }; };
  CHECK_THROWS_WITH_AS(make({.way = Way::batches})(),
                       "[data] loader: a way says how ranks share the samples, but there is no "
                       "shard; name one (.shard = job.place())",
                       peal::Error);
  CHECK_THROWS_WITH_AS(make({.batch_size = 4, .shard = Place{0, 3}, .way = Way::split})(),
                       "[data] split_batches: batches of 4 samples cannot be split evenly among 3 "
                       "ranks; take a batch_size that 3 divides",
                       peal::Error);
  CHECK_THROWS_WITH_AS(
      make({.shard = Place{0, 3}, .way = Way::batches, .drop_last = true, .exact = true})(),
      "[data] loader: exact sees every sample once, drop_last leaves some out: choose one",
      peal::Error);
  DataLoader plan(set, [](std::int64_t) { return Batches{{1}}; });
  CHECK_THROWS_AS(plan.places(), peal::Error);
  const auto loader = loader_of(set, Way::batches, {0, 2}, 3, true);
  CHECK_THROWS_WITH_AS(loader->load_state_dict(
                           {{"epoch", Tensor::scalar(std::int64_t{1})},
                            {"dealt", Tensor::from(Samples{7, 1, 1, 1}, {1, 4}, peal::Device{})}}),
                       "DataLoader: load_state_dict: 1 difference\n  dealt: there is no way 7",
                       peal::Error);
  CHECK_THROWS_AS(loader->load_state_dict(DataLoader(set).state_dict()), peal::Error);
  CHECK(loader->epoch() == 0);
}
