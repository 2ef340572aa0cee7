// SPDX-License-Identifier: Apache-2.0
// Epochs of a loader by its options: order, shard, plans of one's own, chance, and names of
// tensors.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>

#include <map>
#include <memory>
#include <optional>
#include <set>

TEST_CASE("shuffle gives another order in each epoch, and the same ones again") {
  const auto set = std::make_shared<Drawn>(50);
  DataLoader plain(set, {.batch_size = 8});
  CHECK(flat(epoch_of(plain)) == up_to(50));
  CHECK(flat(epoch_of(plain)) == up_to(50));
  DataLoader loader(set, {.batch_size = 8, .shuffle = true});
  DataLoader again(set, {.batch_size = 8, .shuffle = true});
  std::set<Samples> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    CHECK(loader.epoch() == epoch);
    CHECK(loader.size() == 7);
    const Samples order = flat(epoch_of(loader));
    CHECK(sorted(order) == up_to(50));
    CHECK(order == flat(epoch_of(again)));
    orders.insert(order);
  }
  CHECK(orders.size() == 5);
  again.set_epoch(0);
  loader.set_epoch(0);
  CHECK(orders.contains(flat(epoch_of(again))));
  CHECK(loader.next()->x.size(0) == 8);
}

TEST_CASE("manual_seed decides about the order; with a shard, the option alone") {
  const auto set = std::make_shared<Drawn>(50);
  const auto order_by = [&](std::uint64_t seed, std::optional<Place> shard,
                            std::optional<std::uint64_t> option) {
    const auto before = peal::context().generator;
    peal::manual_seed(seed);
    DataLoader loader(set, {.shuffle = true, .shard = shard, .seed = option});
    CHECK(peal::context().generator.offset == 0);  // nothing is taken from the stream
    peal::context().generator = before;
    return flat(epoch_of(loader));
  };
  CHECK(order_by(1, {}, {}) == order_by(1, {}, {}));
  CHECK(order_by(1, {}, {}) != order_by(2, {}, {}));
  CHECK(order_by(1, {}, 7) == order_by(2, {}, 7));
  CHECK(order_by(1, Place{}, {}) == order_by(2, Place{}, {}));
  CHECK(order_by(1, Place{}, 7) == order_by(2, {}, 7));
}

TEST_CASE("shards together are the set, padded or exact") {
  const auto set = std::make_shared<Drawn>(50);
  for (const bool exact : {false, true}) {
    Samples together;
    for (int rank = 0; rank < 4; ++rank) {
      DataLoader loader(
          set, {.batch_size = 5, .shuffle = true, .shard = Place{rank, 4}, .exact = exact});
      const Samples mine = flat(epoch_of(loader));
      CHECK(std::ssize(mine) == (exact && rank >= 2 ? 12 : 13));
      CHECK(mine == peal::data::shard(50, 4, rank, {.exact = exact}));
      together.insert(together.end(), mine.begin(), mine.end());
    }
    if (exact) {
      CHECK(sorted(together) == up_to(50));
    } else {
      CHECK(together.size() == 52);
    }
  }
}

TEST_CASE("what is drawn for a sample depends on seed, epoch and sample alone") {
  const auto set = std::make_shared<Drawn>(60);
  const auto drawn = [&](std::uint64_t seed, int epoch, int world, int workers,
                         std::int64_t batch_size, bool shuffle) {
    std::map<std::int64_t, std::int64_t> by_sample;
    for (int rank = 0; rank < world; ++rank) {
      DataLoader loader(set, {.batch_size = batch_size,
                              .shuffle = shuffle,
                              .shard = Place{rank, world},
                              .seed = seed,
                              .workers = workers});
      loader.set_epoch(epoch);
      for (const auto& [x, y] : loader) {
        for (std::int64_t i = 0; i < x.size(0); ++i) {
          by_sample[x.data<std::int64_t>()[i]] = y.data<std::int64_t>()[i];
        }
      }
    }
    CHECK(by_sample.size() == 60);
    return by_sample;
  };
  const auto reference = drawn(3, 2, 1, 0, 60, false);
  std::set<std::int64_t> values;
  for (const auto& [sample, value] : reference) values.insert(value);
  CHECK(values.size() == 60);
  for (const int world : {1, 2, 3, 4}) {
    for (const int workers : {0, 1, 3}) {
      for (const std::int64_t batch_size : {1, 7}) {
        CHECK(drawn(3, 2, world, workers, batch_size, workers != 1) == reference);
      }
    }
  }
  CHECK(drawn(3, 1, 1, 0, 60, false) != reference);
  CHECK(drawn(4, 2, 1, 0, 60, false) != reference);
}

TEST_CASE("a plan of one's own is followed, and told its epoch") {
  const auto set = std::make_shared<Drawn>(20);
  for (const int workers : {0, 2}) {
    DataLoader loader(set,
                      [](std::int64_t epoch) {
                        return Batches{{epoch, 3, 3}, {}, {19 - epoch}};
                      },
                      {.workers = workers});
    CHECK(loader.size() == 3);
    CHECK(epoch_of(loader) == Batches{{0, 3, 3}, {}, {19}});
    CHECK(epoch_of(loader) == Batches{{1, 3, 3}, {}, {18}});
    loader.set_epoch(7);
    CHECK(loader.next()->x.to_vector<std::int64_t>() == Samples{7, 3, 3});
    CHECK(loader.taken() == 3);
  }
  CHECK_THROWS_WITH_AS(
      DataLoader(set, [](std::int64_t) { return Batches{}; }, {.batch_size = 2}),
      "[data] loader: its plan has the say about what is in a batch: leave out batch_size, "
      "drop_last, shuffle, shard, way and exact",
      peal::Error);
}

TEST_CASE("passes by a sampler that counts no epochs are epochs, each with its own draws") {
  struct Backwards : peal::data::Sampler {
    Samples indices() const override { return {2, 1, 0}; }
    std::int64_t size() const override { return 3; }
  };
  const auto set = std::make_shared<Drawn>(3);
  DataLoader loader(set, std::make_shared<Backwards>(), {.batch_size = 3, .seed = 5});
  const auto pass = [&] {
    Samples drawn;
    for (const auto& [x, y] : loader) {
      CHECK(x.to_vector<std::int64_t>() == Samples{2, 1, 0});
      drawn = y.to_vector<std::int64_t>();
    }
    return drawn;
  };
  std::vector<Samples> passes;
  for (int epoch = 0; epoch < 3; ++epoch) {
    CHECK(loader.epoch() == epoch);
    passes.push_back(pass());
    CHECK(passes.back() ==
          set->augmented(Samples{2, 1, 0}, Draws{5, epoch}).y.to_vector<std::int64_t>());
  }
  CHECK(std::set<Samples>(passes.begin(), passes.end()).size() == 3);
  loader.set_epoch(1);
  CHECK(loader.epoch() == 1);
  CHECK(pass() == passes[1]);
  DataLoader later(set, std::make_shared<Backwards>(), {.batch_size = 3, .seed = 5});
  later.load_state_dict(loader.state_dict());
  CHECK(later.epoch() == 2);
  CHECK(later.next()->y.to_vector<std::int64_t>() == passes[2]);
}

TEST_CASE("epochs after one that was skipped into, resumed or left are whole, and others") {
  const auto set = std::make_shared<Drawn>(16);
  const auto order = [](std::int64_t epoch) {
    return peal::data::shard(16, 1, 0, {.seed = 3, .epoch = epoch});
  };
  const auto rest = [&](std::int64_t epoch, std::int64_t from) {
    const Samples all = order(epoch);
    return Samples(all.begin() + from, all.end());
  };
  for (const int how : {0, 1, 2}) {
    CAPTURE(how);
    const auto make = [&] {
      if (how == 0) {
        return std::make_unique<DataLoader>(
            set, std::make_shared<peal::data::SeedableRandomSampler>(16, 3),
            peal::data::LoaderOptions{.batch_size = 4});
      }
      if (how == 1) {
        return std::make_unique<DataLoader>(
            set, peal::data::LoaderOptions{.batch_size = 4, .shuffle = true, .seed = 3});
      }
      return std::make_unique<DataLoader>(
          set, [&](std::int64_t epoch) { return peal::data::in_batches(order(epoch), 4); });
    };
    const auto loader = make();
    loader->skip_first_batches(2);
    CHECK(flat(epoch_of(*loader)) == rest(0, 8));
    CHECK(loader->epoch() == 1);
    CHECK(loader->consumed() == 0);
    CHECK(flat(epoch_of(*loader)) == order(1));
    // A state at an epoch's end is the beginning of the next.
    const auto other = make();
    other->load_state_dict(loader->state_dict());
    CHECK(flat(epoch_of(*other)) == order(2));
    loader->next();
    other->load_state_dict(loader->state_dict());
    CHECK(flat(epoch_of(*other)) == rest(2, 4));
    CHECK(flat(epoch_of(*other)) == order(3));
    // What was left is begun anew by a sampler, which counts the epochs that were finished.
    other->load_state_dict(loader->state_dict());
    other->next();
    CHECK(flat(epoch_of(*other)) == order(how == 0 ? 2 : 3));
  }
}

TEST_CASE("a sampler that is told its epoch has it, also where a pass was left") {
  const auto sampler = std::make_shared<peal::data::SeedableRandomSampler>(16, 3);
  DataLoader loader(std::make_shared<Drawn>(16), sampler, {.batch_size = 4});
  for (const std::int64_t epoch : {2, 2, 0}) {
    sampler->set_epoch(epoch);
    CHECK(flat(epoch_of(loader)) == peal::data::shard(16, 1, 0, {.seed = 3, .epoch = epoch}));
    CHECK(sampler->epoch() == epoch + 1);
    CHECK(loader.taken() == 0);
    sampler->set_epoch(epoch);
    CHECK(loader.next());
  }
  sampler->resume(5, 12);
  const Samples last = peal::data::shard(16, 1, 0, {.seed = 3, .epoch = 5});
  CHECK(flat(epoch_of(loader)) == Samples(last.begin() + 12, last.end()));
}

TEST_CASE("an epoch's end is known one batch ahead, and waits to be passed") {
  const auto set = std::make_shared<Drawn>(10);
  for (const int how : {0, 1, 2}) {
    for (const int workers : {0, 2}) {
      CAPTURE(how);
      CAPTURE(workers);
      const peal::data::LoaderOptions options{.batch_size = 4, .workers = workers};
      const auto loader =
          how == 0   ? std::make_unique<DataLoader>(set, options)
          : how == 1 ? std::make_unique<DataLoader>(
                           set, std::make_shared<peal::data::SeedableRandomSampler>(10, 3), options)
                     : std::make_unique<DataLoader>(
                           set, [](std::int64_t) { return peal::data::in_batches(up_to(10), 4); },
                           peal::data::LoaderOptions{.workers = workers});
      std::vector<bool> more;
      for (int epoch = 0; epoch < 2; ++epoch) {  // by next(), which says that an epoch is over
        CHECK(loader->has_next());
        while (loader->next()) more.push_back(loader->has_next());
      }
      CHECK(more == std::vector<bool>{true, true, false, true, true, false});
      for (int epoch = 2; epoch < 4; ++epoch) {  // by has_next(), as often as one likes
        loader->set_epoch(epoch);
        int batches = 0;
        for (int turn = 0; turn < 5; ++turn) {
          if (!loader->has_next()) continue;
          CHECK(loader->next());
          ++batches;
        }
        CHECK(batches == 3);
        CHECK(loader->epoch() == epoch);
        CHECK(!loader->has_next());
      }
      // After its last batch an epoch is over for begin(), too.
      more.clear();
      for ([[maybe_unused]] const Batch& batch : *loader) more.push_back(loader->has_next());
      CHECK(more == std::vector<bool>{true, true, false});
      CHECK(loader->epoch() == 5);
      loader->skip_first_batches(3);
      CHECK(!loader->has_next());
    }
  }
  DataLoader none(std::make_shared<Drawn>(0), {.batch_size = 4});
  CHECK(!none.has_next());
}

TEST_CASE("an evaluation within training does not disturb the end of either epoch") {
  DataLoader outer(std::make_shared<Drawn>(80), {.batch_size = 16});
  DataLoader inner(std::make_shared<Drawn>(96), {.batch_size = 16});
  std::vector<bool> ends, inner_ends;
  while (outer.next()) {
    ends.push_back(!outer.has_next());
    if (ends.size() != 2) continue;
    while (inner.next()) {
      inner_ends.push_back(!inner.has_next());
      CHECK(outer.has_next());
    }
  }
  CHECK(ends == std::vector<bool>{false, false, false, false, true});
  CHECK(inner_ends == std::vector<bool>{false, false, false, false, false, true});
}

TEST_CASE("a batch has names") {
  DataLoader loader(std::make_shared<Drawn>(120), {.batch_size = 120, .workers = 1});
  const Batch batch = *loader.next();
  CHECK(batch.size() == 120);
  CHECK(batch["x"].same_as(batch.x));
  CHECK(batch["y"].same_as(batch.y));
  CHECK(batch["length"].to_vector<std::int64_t>()[100] == 3);
  CHECK(batch.to(peal::Device{})["length"].to_vector<std::int64_t>()[99] == 2);
  CHECK_THROWS_WITH_AS(batch["mask"], "[data] batch: it has no tensor 'mask', but x, y, length",
                       peal::Error);
  Batch mine = batch;
  auto& [x, y] = mine;
  x = y;
  CHECK(mine.x.same_as(mine.y));
}
