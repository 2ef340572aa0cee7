// SPDX-License-Identifier: Apache-2.0
// A loader's place in an epoch: saved, taken up by another world, by a sampler and by a plan, and
// kept after a failure.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>

#include <atomic>
#include <memory>
#include <utility>

static_assert(peal::Stateful<DataLoader>);

TEST_CASE("an epoch is taken up where its state says, by another world too") {
  const auto set = std::make_shared<Drawn>(50);
  const auto make = [&](Place place) {
    return std::make_unique<DataLoader>(
        set, peal::data::LoaderOptions{
                 .batch_size = 3, .shuffle = true, .shard = place, .seed = 9, .exact = true});
  };
  Samples seen;
  peal::NamedTensors state;
  for (int rank = 0; rank < 2; ++rank) {
    const auto loader = make({rank, 2});
    epoch_of(*loader);
    CHECK(loader->consumed() == 0);  // of the epoch to come
    CHECK(loader->epoch() == 1);
    for (int step = 0; step < 4; ++step) {
      const Samples batch = loader->next()->x.to_vector<std::int64_t>();
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    CHECK(loader->epoch() == 1);
    CHECK(loader->consumed() == 24);
    state = loader->state_dict();
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto loader = make({rank, 3});
    loader->load_state_dict(state);
    CHECK(loader->consumed() == 24);
    CHECK(loader->size() == 3);
    const Samples rest = flat(epoch_of(*loader));
    seen.insert(seen.end(), rest.begin(), rest.end());
    CHECK(loader->epoch() == 2);
    CHECK(epoch_of(*loader).size() == 6);  // a whole one again
  }
  CHECK(sorted(seen) == up_to(50));
  CHECK_THROWS_WITH_AS(make({})->load_state_dict({{"epoch", Tensor::scalar(std::int64_t{1})}}),
                       "DataLoader: load_state_dict: 1 difference\n  missing: consumed i64 []",
                       peal::Error);
}

TEST_CASE("an epoch of a plan is taken up after the batches that were handed out") {
  const auto set = std::make_shared<Drawn>(20);
  const auto make = [&](int workers) {
    return std::make_unique<DataLoader>(
        set,
        [](std::int64_t epoch) {
          return Batches{{epoch, 3, 3}, {}, {19 - epoch}, {1, 2}};
        },
        peal::data::LoaderOptions{.workers = workers});
  };
  for (const int workers : {0, 2}) {
    const auto loader = make(workers), later = make(workers);
    CHECK(epoch_of(*loader).size() == 4);
    CHECK(loader->consumed() == 0);
    loader->next();
    loader->next();  // the empty one
    CHECK(loader->consumed() == 2);
    later->load_state_dict(loader->state_dict());
    CHECK(later->epoch() == 1);
    CHECK(later->size() == 2);
    CHECK(later->next()->x.to_vector<std::int64_t>() == Samples{18});
    CHECK(later->size() == 2);
    CHECK(later->consumed() == 3);
    loader->load_state_dict(later->state_dict());
    CHECK(epoch_of(*loader) == Batches{{1, 2}});
    CHECK(epoch_of(*loader) == Batches{{2, 3, 3}, {}, {17}, {1, 2}});
    loader->resume(0, 5);
    CHECK(loader->size() == 0);
    CHECK_THROWS_WITH_AS(loader->next(),
                         "[data] loader: an epoch of 4 batches cannot be taken up after 5; does "
                         "the plan give other batches than when the state was saved?",
                         peal::Error);
  }
  CHECK_THROWS_WITH_AS(
      make(0)->load_state_dict(DataLoader(set).state_dict()),
      "DataLoader: load_state_dict: 2 differences\n  missing: batches i64 []\n  unexpected: "
      "consumed i64 []",
      peal::Error);
}

TEST_CASE("an epoch of a sampler is taken up by the sampler's own word") {
  const auto set = std::make_shared<Drawn>(20);
  const auto make = [&](int rank, int world) {
    auto sampler = std::make_shared<peal::data::DistributedSampler>(
        20, world, rank, peal::data::ShardOptions{.seed = 3, .exact = true});
    return std::make_unique<DataLoader>(set, sampler, peal::data::LoaderOptions{.batch_size = 2});
  };
  Samples seen;
  peal::NamedTensors state;
  for (int rank = 0; rank < 2; ++rank) {
    const auto loader = make(rank, 2);
    loader->set_epoch(4);
    for (int step = 0; step < 2; ++step) {
      const Samples batch = loader->next()->x.to_vector<std::int64_t>();
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    CHECK(loader->consumed() == 8);
    state = loader->state_dict();
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto loader = make(rank, 3);
    loader->load_state_dict(state);
    CHECK(loader->epoch() == 4);
    CHECK(loader->consumed() == 8);
    const Samples rest = flat(epoch_of(*loader));
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  CHECK(sorted(seen) == up_to(20));
}

TEST_CASE("a sampler that cannot be taken up within an epoch says so when the state is saved") {
  struct Backwards : peal::data::Sampler {
    Samples indices() const override { return {2, 1, 0}; }
    std::int64_t size() const override { return 3; }
  };
  DataLoader loader(std::make_shared<Drawn>(3), std::make_shared<Backwards>());
  CHECK(loader.state_dict().size() == 2);
  loader.next();
  CHECK_THROWS_WITH_AS(loader.state_dict(),
                       "[data] sampler: this one says nothing of how to go on after 1 samples of "
                       "its epoch: let it override consumed_after() and resume(), or save its "
                       "state between epochs",
                       peal::Error);
  CHECK_THROWS_WITH_AS(loader.resume(0, 1),
                       "[data] sampler: this one cannot take up an epoch after 1 samples: let it "
                       "override consumed_after() and resume()",
                       peal::Error);
}

namespace {

// Sample 20 cannot be had while it is bad.
struct Fragile : Drawn {
  using Drawn::Drawn;
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
    for (const std::int64_t index : indices) {
      if (index == 20 && bad) throw peal::Error("its file is gone");
    }
    return Drawn::augmented(indices, draws);
  }
  std::atomic<bool> bad{true};
};

// Of the next batch.
std::int64_t first_of(DataLoader& loader) {
  const auto batch = loader.next();
  REQUIRE(batch);
  return batch->x.to_vector<std::int64_t>()[0];
}

}  // namespace

TEST_CASE(
    "after a failure a loader's state is where it failed, and it can be taken up from there") {
  const Place alone{};
  for (const int workers : {0, 2}) {
    const auto set = std::make_shared<Fragile>(40);
    const auto sampler = std::make_shared<peal::data::DistributedSampler>(
        40, 1, 0, peal::data::ShardOptions{.shuffle = false});
    const auto plan = [](std::int64_t) { return peal::data::in_batches(up_to(40), 4); };
    const std::int64_t samples = 20, batches = 5;
    std::vector<std::pair<std::unique_ptr<DataLoader>, std::int64_t>> loaders;
    loaders.emplace_back(
        std::make_unique<DataLoader>(
            set, peal::data::LoaderOptions{.batch_size = 4, .shard = alone, .workers = workers}),
        samples);
    loaders.emplace_back(
        std::make_unique<DataLoader>(
            set, sampler, peal::data::LoaderOptions{.batch_size = 4, .workers = workers}),
        samples);
    loaders.emplace_back(
        std::make_unique<DataLoader>(set, plan, peal::data::LoaderOptions{.workers = workers}),
        batches);
    for (const auto& [loader, place] : loaders) {
      set->bad = true;
      loader->set_epoch(3);
      const auto fail = [&, &it = *loader] { epoch_of(it); };
      CHECK_THROWS_AS(fail(), peal::Error);
      CHECK(loader->epoch() == 3);
      CHECK(loader->consumed() == place);
      CHECK(loader->taken() == samples);
      CHECK(loader->size() == 10);
      const auto state = loader->state_dict();
      CHECK_THROWS_AS(loader->next(), peal::Error);  // no end of an epoch that failed
      CHECK(loader->consumed() == place);

      set->bad = false;
      loader->load_state_dict(state);
      CHECK(first_of(*loader) == 20);
      CHECK(loader->epoch() == 3);

      set->bad = true;
      loader->load_state_dict(state);
      CHECK_THROWS_AS(loader->next(), peal::Error);
      loader->resume(3, loader->consumed() + place / 5);  // past the bad one's batch
      CHECK(first_of(*loader) == 24);

      loader->set_epoch(2);
      CHECK(first_of(*loader) == 0);
      CHECK_THROWS_AS(fail(), peal::Error);
      loader->set_epoch(5);
      CHECK(first_of(*loader) == 0);
      CHECK(loader->epoch() == 5);
    }
  }
}

TEST_CASE("an epoch whose plan fails stays the one to come") {
  bool bad = true;
  DataLoader loader(std::make_shared<Drawn>(8), [&](std::int64_t epoch) {
    if (epoch == 1 && bad) throw peal::Error("no lengths yet");
    return Batches{{epoch, 2}, {3, 4}, {5}};
  });
  CHECK(epoch_of(loader).size() == 3);
  CHECK_THROWS_WITH_AS(loader.next(), "no lengths yet", peal::Error);
  CHECK(loader.epoch() == 1);
  bad = false;
  CHECK(first_of(loader) == 1);
  bad = true;
  loader.resume(1, 2);
  CHECK_THROWS_WITH_AS(loader.begin(), "no lengths yet", peal::Error);
  CHECK(loader.epoch() == 1);
  CHECK(loader.consumed() == 2);
  bad = false;
  CHECK(first_of(loader) == 5);
}

TEST_CASE("states of all ranks are alike after each step, also where ranks have not equally many") {
  for (const std::int64_t size : {41, 42, 47, 50, 60}) {
    for (const bool exact : {false, true}) {
      std::vector<std::vector<std::int64_t>> consumed(4);  // by rank, after each batch
      for (int rank = 0; rank < 4; ++rank) {
        DataLoader loader(std::make_shared<Drawn>(size),
                          {.batch_size = 5, .shard = Place{rank, 4}, .exact = exact});
        while (loader.next()) consumed[static_cast<std::size_t>(rank)].push_back(loader.consumed());
      }
      CAPTURE(size);
      CAPTURE(exact);
      REQUIRE(consumed[0].size() == 3);
      for (std::size_t rank = 1; rank < 4; ++rank) {
        REQUIRE(consumed[rank].size() >= 2);
        REQUIRE(consumed[rank].size() <= 3);
        for (std::size_t step = 0; step < consumed[rank].size(); ++step) {
          CHECK(consumed[rank][step] == consumed[0][step]);
        }
      }
      CHECK(consumed[0][1] == 40);
      CHECK(consumed[0][2] == size);
    }
  }
}
