// SPDX-License-Identifier: Apache-2.0
// The loader of a stream in parts: whose parts they are, batches that do not depend on workers, the
// end known ahead, and going on from a state in any world.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/stream_loader.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

using peal::NamedTensors;
using peal::data::StreamDataset;
using peal::data::StreamLoader;
using peal::data::StreamLoaderOptions;

static_assert(peal::Stateful<StreamLoader>);

namespace {

// Part p has the samples 100 p, 100 p + 1, ..., `lengths[p]` of them; y is drawn for each.
struct Parts : StreamDataset {
  explicit Parts(Samples n) : lengths(std::move(n)) {}
  std::int64_t parts() const override { return std::ssize(lengths); }
  Reader read(std::int64_t part, std::int64_t from, const Draws& draws) const override {
    const std::int64_t end = lengths[static_cast<std::size_t>(part)];
    return [=, k = from, this]() mutable -> std::optional<Batch> {
      if (k >= end) return std::nullopt;
      const std::int64_t sample = 100 * part + k++;
      if (sample == bad) throw std::runtime_error("its line is no number");
      if (slow && sample % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      Draw draw = draws.of(sample);
      const auto one = [](std::int64_t value) {
        return Tensor::from(Samples{value}, {1}, peal::Device{});
      };
      return Batch{one(sample), one(draw.below(1000)), {{"part", one(part)}}};
    };
  }
  Samples all() const {
    Samples samples;
    for (std::int64_t part = 0; part < parts(); ++part) {
      for (std::int64_t k = 0; k < lengths[static_cast<std::size_t>(part)]; ++k) {
        samples.push_back(100 * part + k);
      }
    }
    return samples;
  }
  Samples lengths;
  std::atomic<std::int64_t> bad = -1;  // readers run ahead of who sets it
  bool slow = false;
};

const Samples seven{5, 0, 13, 1, 8, 7, 20};

Batches rest_of(StreamLoader& loader, std::int64_t most = 1 << 20) {
  Batches batches;
  for (std::int64_t k = 0; k < most; ++k) {
    const auto batch = loader.next();
    if (!batch) break;
    batches.push_back(batch->x.to_vector<std::int64_t>());
  }
  return batches;
}

}  // namespace

TEST_CASE("the readers of all ranks share the parts: every sample once, whoever works") {
  const auto set = std::make_shared<Parts>(seven);
  set->slow = true;
  int cases = 0;
  for (const int world : {1, 2, 3}) {
    for (const int readers : {1, 4}) {
      for (const bool shuffle : {false, true}) {
        Batches reference;
        for (const int workers : {0, 1, 4}) {
          if (workers > readers) continue;
          Batches together;
          for (int rank = 0; rank < world; ++rank) {
            StreamLoader loader(set, {.batch_size = 3,
                                      .place = {rank, world},
                                      .readers = readers,
                                      .workers = workers,
                                      .shuffle = shuffle});
            const Batches first = rest_of(loader);
            CHECK(loader.epoch() == 1);
            const Batches second = rest_of(loader);
            CHECK(sorted(flat(second)).size() >= (shuffle ? 0 : flat(first).size()));
            together.insert(together.end(), first.begin(), first.end());
            for (const Samples& batch : first) CHECK(batch.size() <= 3);
          }
          CHECK(sorted(flat(together)) == set->all());
          if (reference.empty()) reference = together;
          CHECK(together == reference);
          ++cases;
        }
      }
    }
  }
  CHECK(cases == 3 * 2 * 5);
}

TEST_CASE("readers take turns, and a part's samples come in order") {
  const auto set = std::make_shared<Parts>(Samples{4, 2, 1});
  StreamLoader loader(set, {.batch_size = 2, .readers = 2});
  CHECK(rest_of(loader) == Batches{{0, 1}, {100, 101}, {2, 3}, {200}});
  StreamLoader dropped(set, {.batch_size = 2, .readers = 2, .drop_last = true});
  CHECK(rest_of(dropped) == Batches{{0, 1}, {100, 101}, {2, 3}});
  StreamLoader more(set, {.batch_size = 4, .readers = 8, .workers = 3});
  CHECK(rest_of(more) == Batches{{0, 1, 2, 3}, {100, 101}, {200}});
  StreamLoader none(std::make_shared<Parts>(Samples{}), {});
  CHECK(rest_of(none).empty());
  StreamLoader far(set, {.place = {5, 8}});  // a rank without a part
  CHECK(!far.has_next());
  CHECK(rest_of(far).empty());
}

TEST_CASE("what is drawn for a sample does not depend on who reads it") {
  const auto set = std::make_shared<Parts>(seven);
  std::map<std::int64_t, std::int64_t> drawn[2];
  for (const int world : {1, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      StreamLoader loader(set,
                          {.batch_size = 4, .place = {rank, world}, .readers = world, .seed = 5});
      loader.set_epoch(2);
      while (const auto batch = loader.next()) {
        CHECK((*batch)["part"].size(0) == batch->size());
        for (std::int64_t i = 0; i < batch->size(); ++i) {
          drawn[world / 2][batch->x.data<std::int64_t>()[i]] = batch->y.data<std::int64_t>()[i];
        }
      }
    }
  }
  CHECK(drawn[0].size() == 54);
  CHECK(drawn[0] == drawn[1]);
}

TEST_CASE("the end of a stream is known a batch ahead, epochs are set and batches skipped") {
  const auto set = std::make_shared<Parts>(seven);
  for (const int workers : {0, 2}) {
    StreamLoader loader(set, {.batch_size = 5, .readers = 2, .workers = workers});
    const Batches whole = rest_of(loader);
    for (int epoch = 1; epoch < 3; ++epoch) {
      loader.set_epoch(epoch);
      Batches got;
      for (int turn = 0; turn < 20; ++turn) {
        if (!loader.has_next()) continue;
        got.push_back(loader.next()->x.to_vector<std::int64_t>());
      }
      CHECK(got == whole);
      CHECK(loader.epoch() == epoch);
    }
    loader.set_epoch(4);
    loader.skip_first_batches(3);
    CHECK(rest_of(loader) == Batches(whole.begin() + 3, whole.end()));
    CHECK_THROWS_AS(loader.skip_first_batches(100), peal::Error);
  }
}

TEST_CASE("every batch of a stream is a place to go on from, in any world and with any readers") {
  const auto set = std::make_shared<Parts>(seven);
  int places = 0;
  for (const auto& [before, after] :
       {std::pair(1, 3), std::pair(3, 1), std::pair(3, 2), std::pair(2, 2)}) {
    for (const int readers : {1, 3}) {
      for (std::int64_t at = 0; at <= 12; ++at) {
        CAPTURE(peal::concat(before, " ranks to ", after, ", ", readers, " readers, batch ", at));
        const auto make = [&](int rank, int world, int each) {
          auto loader =
              std::make_unique<StreamLoader>(set, StreamLoaderOptions{.batch_size = 2,
                                                                      .place = {rank, world},
                                                                      .readers = each,
                                                                      .workers = each - 1,
                                                                      .shuffle = true});
          return loader;
        };
        std::vector<NamedTensors> states;
        Samples seen;
        std::vector<Batches> unbroken;
        for (int rank = 0; rank < before; ++rank) {
          const auto loader = make(rank, before, readers), whole = make(rank, before, readers);
          loader->set_epoch(1);
          Samples mine;
          for (std::int64_t k = 0; k < at && loader->has_next(); ++k) {
            const Samples batch = loader->next()->x.to_vector<std::int64_t>();
            mine.insert(mine.end(), batch.begin(), batch.end());
          }
          seen.insert(seen.end(), mine.begin(), mine.end());
          states.push_back(loader->state_dict());
          whole->set_epoch(1);
          Batches all = rest_of(*whole);
          all.erase(all.begin(), all.begin() + std::min<std::ptrdiff_t>(at, std::ssize(all)));
          unbroken.push_back(all);
        }
        const NamedTensors state = StreamLoader::merge_states(states);
        // In its own world each rank goes on batch for batch, also after a second break.
        for (int rank = 0; rank < before; ++rank) {
          const auto loader = make(rank, before, readers), later = make(rank, before, readers);
          loader->load_state_dict(state);
          CHECK(loader->epoch() == 1);
          Batches rest;
          if (loader->has_next()) rest.push_back(loader->next()->x.to_vector<std::int64_t>());
          later->load_state_dict(loader->state_dict());
          const Batches last = rest_of(*later);
          rest.insert(rest.end(), last.begin(), last.end());
          CHECK(rest == unbroken[static_cast<std::size_t>(rank)]);
        }
        // In another, what is left is dealt anew, and again in a third.
        states.clear();
        for (int rank = 0; rank < after; ++rank) {
          const auto loader = make(rank, after, 2);
          loader->load_state_dict(state);
          if (loader->has_next()) {
            const Samples batch = loader->next()->x.to_vector<std::int64_t>();
            seen.insert(seen.end(), batch.begin(), batch.end());
          }
          states.push_back(loader->state_dict());
        }
        const auto last = make(0, 1, 1);
        last->load_state_dict(StreamLoader::merge_states(states));
        const Samples rest = flat(rest_of(*last));
        seen.insert(seen.end(), rest.begin(), rest.end());
        REQUIRE(sorted(seen) == set->all());
        CHECK(last->epoch() == 2);
        CHECK(sorted(flat(rest_of(*last))) == set->all());  // a whole one again
        ++places;
      }
    }
  }
  MESSAGE(places, " places");
}

TEST_CASE(
    "an error names the sample and the part, and comes in its place, until the epoch is set") {
  for (const int workers : {0, 2}) {
    const auto set = std::make_shared<Parts>(Samples{3, 5, 4});
    set->bad = 103;
    StreamLoader loader(set, {.batch_size = 2, .readers = 2, .workers = workers});
    CHECK(rest_of(loader, 3) == Batches{{0, 1}, {100, 101}, {2, 200}});
    for (int again = 0; again < 2; ++again) {
      CHECK_THROWS_WITH_AS(
          loader.next(), "[data] sample 3 of part 1 (epoch 0): its line is no number", peal::Error);
    }
    CHECK(loader.epoch() == 0);
    set->bad = -1;
    loader.set_epoch(0);
    CHECK(sorted(flat(rest_of(loader))) == set->all());
  }
}

TEST_CASE("samples of different sizes need a collate of their own, and what else is refused") {
  struct Ragged : StreamDataset {
    std::int64_t parts() const override { return 1; }
    Reader read(std::int64_t, std::int64_t from, const Draws&) const override {
      return [k = from]() mutable -> std::optional<Batch> {
        if (++k > 3) return std::nullopt;
        return Batch{Tensor::zeros({1, k}, peal::DType::f32, peal::Device{}), Tensor()};
      };
    }
  };
  struct Padded : Ragged {
    Batch collate(std::span<const Batch> samples) const override {
      std::int64_t width = 0;
      for (const Batch& sample : samples) width = std::max(width, sample.x.size(1));
      return {Tensor::zeros({std::ssize(samples), width}, peal::DType::f32, peal::Device{}),
              Tensor()};
    }
  };
  StreamLoader ragged(std::make_shared<Ragged>(), {.batch_size = 2});
  CHECK_THROWS_WITH_AS(ragged.next(),
                       "[data] stream: samples of one batch have a tensor 'x' f32 [1, 1] and f32 "
                       "[1, 2]; let the set override collate(), to pad them, say",
                       peal::Error);
  StreamLoader padded(std::make_shared<Padded>(), {.batch_size = 2});
  CHECK(padded.next()->x.shape() == peal::Shape{2, 2});
  CHECK(padded.next()->x.shape() == peal::Shape{1, 3});
  const auto set = std::make_shared<Parts>(seven);
  CHECK_THROWS_WITH_AS(StreamLoader(set, {.workers = 2}),
                       "[data] stream loader: expected workers from 0 to 1, as many as there are "
                       "readers, got 2",
                       peal::Error);
  CHECK_THROWS_AS(StreamLoader(set, {.place = {2, 2}}), peal::Error);
  CHECK_THROWS_AS(StreamLoader(set, {.batch_size = 0}), peal::Error);
  CHECK_THROWS_AS(StreamLoader(nullptr), peal::Error);
  StreamLoader whole(set), other(std::make_shared<Parts>(Samples{1}));
  CHECK_THROWS_AS(other.load_state_dict(whole.state_dict()), peal::Error);
  const std::vector<NamedTensors> unlike{whole.state_dict(), other.state_dict()};
  CHECK_THROWS_AS(StreamLoader::merge_states(unlike), peal::Error);
  StreamLoader ahead(set);
  while (ahead.next()) {
  }
  whole.next();
  const std::vector<NamedTensors> epochs{whole.state_dict(), ahead.state_dict()};
  CHECK_THROWS_WITH_AS(StreamLoader::merge_states(epochs),
                       "[data] stream loader: states cannot be merged where epoch is 0 in one and "
                       "1 in another; take them while all ranks are in one epoch",
                       peal::Error);
}
