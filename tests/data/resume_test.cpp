// SPDX-License-Identifier: Apache-2.0
// A loader's place in an epoch: saved, taken up by another world, by a sampler and by a plan, and
// kept after a failure.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/random_sampler.h>
#include <peal/tests/errors.h>

#include <atomic>
#include <memory>
#include <utility>

using peal::data::LoaderOptions;
using peal::testing::check_has;
using peal::testing::error_of;

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
      "DataLoader: load_state_dict: 3 differences\n  missing: batches i64 []\n  unexpected: "
      "consumed i64 []\n  unexpected: samples i64 []",
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
  CHECK(loader.state_dict().size() == 3);  // epoch, consumed, augmentation
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

namespace {

// What a rank is handed out: the samples, and what was drawn for each.
struct Handed {
  Samples samples, draws;
  bool operator==(const Handed&) const = default;
  void take(const Batch& batch) {
    for (const std::int64_t sample : batch.x.to_vector<std::int64_t>()) samples.push_back(sample);
    for (const std::int64_t draw : batch.y.to_vector<std::int64_t>()) draws.push_back(draw);
  }
};

}  // namespace

TEST_CASE(
    "every batch of an epoch is a place to go on from in another world: none twice or missing") {
  int resumed = 0;
  for (const auto& [before, after] :
       {std::pair(4, 3), std::pair(3, 4), std::pair(1, 4), std::pair(4, 1), std::pair(2, 2)}) {
    for (const std::int64_t size : {50, 48, 11}) {
      const auto set = std::make_shared<Drawn>(size);
      const auto make = [&](int rank, int world, std::int64_t batch_size) {
        return std::make_unique<DataLoader>(set,
                                            peal::data::LoaderOptions{.batch_size = batch_size,
                                                                      .shuffle = true,
                                                                      .shard = Place{rank, world},
                                                                      .seed = 9,
                                                                      .exact = true});
      };
      const std::int64_t batches = make(0, before, 2)->size();
      for (std::int64_t at = 0; at <= batches; ++at) {
        CAPTURE(peal::concat(before, " ranks to ", after, ", ", size, " samples, batch ", at));
        Handed seen;
        peal::NamedTensors state;
        for (int rank = 0; rank < before; ++rank) {
          const auto loader = make(rank, before, 2);
          loader->set_epoch(2);
          for (std::int64_t k = 0; k < at; ++k) {
            if (const auto batch = loader->next()) seen.take(*batch);
          }
          if (rank == 0) state = loader->state_dict();
        }
        std::vector<std::size_t> counts;
        for (int rank = 0; rank < after; ++rank) {
          const auto loader = make(rank, after, 3);
          loader->load_state_dict(state);
          CHECK(loader->epoch() == 2);
          const std::size_t had = seen.samples.size();
          while (const auto batch = loader->next()) seen.take(*batch);
          counts.push_back(seen.samples.size() - had);
        }
        CHECK(counts.front() - counts.back() <= 1);
        REQUIRE(sorted(seen.samples) == up_to(size));
        Handed whole;
        whole.take(set->augmented(seen.samples, Draws{9, 2}));
        CHECK(seen == whole);
        ++resumed;
      }
    }
  }
  MESSAGE(resumed, " places");
}

TEST_CASE("every batch of three epochs is a place to go on from, bit for bit, whoever makes them") {
  const auto set = std::make_shared<Drawn>(10);
  const auto make = [&](int workers, int how) -> std::unique_ptr<DataLoader> {
    peal::data::LoaderOptions options{.batch_size = 2, .seed = 4, .workers = workers};
    if (how == 0) {
      return std::make_unique<DataLoader>(
          set, std::make_shared<peal::data::SeedableRandomSampler>(10, 4), options);
    }
    if (how == 1) {
      options.shuffle = true;
      return std::make_unique<DataLoader>(set, options);
    }
    options.batch_size = 1;
    return std::make_unique<DataLoader>(
        set,
        [](std::int64_t epoch) {
          return peal::data::in_batches(peal::data::shard(10, 1, 0, {.seed = 4, .epoch = epoch}),
                                        2);
        },
        options);
  };
  Handed reference;
  for (const int how : {0, 1, 2}) {
    for (const int workers : {0, 2, 8}) {
      CAPTURE(how);
      CAPTURE(workers);
      // Samplers do not count epochs by themselves.
      const auto epochs = [&](DataLoader& loader, int from, int to) {
        Handed handed;
        for (int k = from; k < to; ++k) {
          if (k % 5 == 0) loader.set_epoch(k / 5);
          handed.take(*loader.next());
        }
        return handed;
      };
      const auto whole = make(workers, how);
      const Handed unbroken = epochs(*whole, 0, 15);
      if (reference.samples.empty()) reference = unbroken;
      CHECK(unbroken == reference);
      for (int at = 0; at <= 15; ++at) {
        const auto first = make(workers, how), second = make(workers, how),
                   third = make(workers, how);
        Handed all = epochs(*first, 0, at);
        second->load_state_dict(first->state_dict());
        const int again = std::min(at + 1, 15);  // two breaks in one epoch
        const Handed middle = epochs(*second, at, again);
        third->load_state_dict(second->state_dict());
        const Handed rest = epochs(*third, again, 15);
        for (const Handed* part : {&middle, &rest}) {
          all.samples.insert(all.samples.end(), part->samples.begin(), part->samples.end());
          all.draws.insert(all.draws.end(), part->draws.begin(), part->draws.end());
        }
        CHECK(all == reference);
      }
    }
  }
}

TEST_CASE("the first batches are skipped, of one epoch") {
  const auto set = std::make_shared<Drawn>(16);
  const auto plan = [](std::int64_t) { return peal::data::in_batches(up_to(16), 4); };
  const auto sampler = std::make_shared<peal::data::DistributedSampler>(
      16, 1, 0, peal::data::ShardOptions{.shuffle = false});
  std::vector<std::unique_ptr<DataLoader>> loaders;
  loaders.push_back(std::make_unique<DataLoader>(set, peal::data::LoaderOptions{.batch_size = 4}));
  loaders.push_back(std::make_unique<DataLoader>(set, plan));
  loaders.push_back(
      std::make_unique<DataLoader>(set, sampler, peal::data::LoaderOptions{.batch_size = 4}));
  for (const auto& loader : loaders) {
    loader->skip_first_batches(2);
    CHECK(loader->size() == 2);
    CHECK(epoch_of(*loader) == Batches{{8, 9, 10, 11}, {12, 13, 14, 15}});
    loader->set_epoch(1);
    CHECK(epoch_of(*loader).size() == 4);
    loader->set_epoch(2);
    loader->next();
    loader->skip_first_batches(2);  // of what is left
    CHECK(loader->epoch() == 2);
    CHECK(loader->next()->x.to_vector<std::int64_t>() == Samples{12, 13, 14, 15});
    CHECK(!loader->next());
    loader->set_epoch(3);
    CHECK_THROWS_WITH_AS(loader->skip_first_batches(5),
                         "[data] loader: expected 0 to 4 batches to skip in epoch 3, got 5",
                         peal::Error);
    loader->skip_first_batches(4);
    CHECK(!loader->next());
  }
  for (int rank = 0; rank < 3; ++rank) {  // ranks skip together
    DataLoader loader(set, {.batch_size = 2, .shard = Place{rank, 3}, .exact = true});
    loader.skip_first_batches(2);
    CHECK(flat(epoch_of(loader)) == Batches{{12, 15}, {13}, {14}}[static_cast<std::size_t>(rank)]);
  }
}

TEST_CASE("evaluation sees each sample once, whatever the world and the batch") {
  int cases = 0;
  for (const int world : {1, 2, 3, 8}) {
    for (const std::int64_t size :
         {0, 1, world - 1, world, world + 1, 9, 30, 97, 99, 499, 512, 10000}) {
      for (const std::int64_t batch_size : {1, 4, 5, 16}) {
        if (size == 10000 && batch_size == 1) continue;  // as slow as it is like the others
        Samples seen;
        for (int rank = 0; rank < world; ++rank) {
          DataLoader loader(std::make_shared<Drawn>(size),
                            {.batch_size = batch_size, .shard = Place{rank, world}, .exact = true});
          const Samples mine = flat(epoch_of(loader));
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
        REQUIRE(sorted(seen) == up_to(size));
        ++cases;
      }
    }
  }
  CHECK(cases == 4 * (12 * 4 - 1));
  MESSAGE(cases, " cases");
}
