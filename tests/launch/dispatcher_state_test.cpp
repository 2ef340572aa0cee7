// SPDX-License-Identifier: Apache-2.0
// A dispatcher's epochs: their size, skipping, and going on from a state, by a set in any world,
// and of streams.
#include <doctest/doctest.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/tests/data/drawn.h>
#include <peal/tests/errors.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

using namespace peal::testing;
using peal::data::LoaderOptions;
using peal::launch::Dispatcher;

namespace {

void ranks(int world, const std::function<void(const peal::comm::ProcessGroup&)>& f) {
  peal::comm::run_ranks(world, {.deadline = std::chrono::minutes(1)}, f);
}

Dispatcher by_set(const peal::comm::ProcessGroup& group, std::int64_t size,
                  std::int64_t batch_size = 2, int workers = 0) {
  return {group, group.rank() == 0 ? std::make_shared<Drawn>(size) : nullptr,
          LoaderOptions{.batch_size = batch_size, .shuffle = true, .seed = 9, .workers = workers}};
}

Batches rest_of(Dispatcher& dispatcher, std::int64_t most = 1 << 20) {
  Batches batches;
  for (std::int64_t k = 0; k < most; ++k) {
    const auto batch = dispatcher.next();
    if (!batch) break;
    batches.push_back(batch->x.to_vector<std::int64_t>());
  }
  return batches;
}

// Batches of growing length, of which the k-th is k, k, ...; pass after pass.
std::function<std::optional<Batch>()> stream(std::int64_t count) {
  return [count, k = std::int64_t{0}]() mutable -> std::optional<Batch> {
    if (k == count) {
      k = 0;
      return std::nullopt;
    }
    const Samples values(static_cast<std::size_t>(k + 1), k);
    ++k;
    return Batch{Tensor::from(values, {std::ssize(values)}, peal::Device{}), Tensor()};
  };
}

Samples firsts(const Batches& batches) {
  Samples all;
  for (const Samples& batch : batches) all.push_back(batch.at(0));
  return all;
}

}  // namespace

TEST_CASE("by a set, each rank gets what the plan deals it, with as many workers as one likes") {
  for (const int world : {1, 2, 4}) {
    for (const std::int64_t size : {0, 1, 21}) {
      for (const int workers : {0, 2}) {
        ranks(world, [&](const peal::comm::ProcessGroup& group) {
          Dispatcher dispatcher = by_set(group, size, 3, workers);
          for (int epoch = 0; epoch < 3; ++epoch) {
            CHECK(dispatcher.epoch() == epoch);
            const auto order =
                peal::data::shard(size, 1, 0, {.shuffle = true, .seed = 9, .epoch = epoch});
            const Batches mine =
                peal::data::dispatched(peal::data::in_batches(order, 3), 3, {group.rank(), world});
            CHECK(dispatcher.size() == std::ssize(mine));
            CHECK(rest_of(dispatcher) == mine);
          }
        });
      }
    }
  }
}

TEST_CASE("epochs are set, and batches skipped, on all ranks at once") {
  ranks(2, [](const peal::comm::ProcessGroup& group) {
    Dispatcher dispatcher = by_set(group, 21);
    const Batches first = rest_of(dispatcher);
    CHECK(first.size() == 6);
    rest_of(dispatcher, 2);
    dispatcher.set_epoch(0);
    CHECK(dispatcher.epoch() == 0);
    dispatcher.skip_first_batches(4);
    CHECK(dispatcher.size() == 2);
    CHECK(rest_of(dispatcher) == Batches(first.begin() + 4, first.end()));
    CHECK(dispatcher.size() == 6);
    check_has(error_of([&] { dispatcher.skip_first_batches(7); }),
              "expected 0 to 6 batches to skip in epoch 1, got 7");
    CHECK(dispatcher.epoch() == 1);
    CHECK(rest_of(dispatcher).size() == 6);  // after an error that all have, all go on
  });
}

TEST_CASE("a dispatched epoch is taken up in any world: none missing") {
  for (const auto& [before, after] :
       {std::pair(2, 3), std::pair(3, 2), std::pair(1, 2), std::pair(2, 1), std::pair(2, 2)}) {
    for (std::int64_t at = 0; at <= 20 / (2 * before); ++at) {
      std::mutex mutex;
      Samples seen;
      peal::NamedTensors state;
      ranks(before, [&, at = at](const peal::comm::ProcessGroup& group) {
        Dispatcher dispatcher = by_set(group, 24);
        dispatcher.set_epoch(1);
        const Samples mine = flat(rest_of(dispatcher, at));
        const std::lock_guard lock(mutex);
        seen.insert(seen.end(), mine.begin(), mine.end());
        if (group.rank() == 0) state = dispatcher.state_dict();
        if (group.rank() != 0) CHECK(dispatcher.state_dict().empty());
      });
      ranks(after, [&](const peal::comm::ProcessGroup& group) {
        Dispatcher dispatcher = by_set(group, 24);
        dispatcher.load_state_dict(group.rank() == 0 ? state : peal::NamedTensors{});
        CHECK(dispatcher.epoch() == 1);
        const Samples mine = flat(rest_of(dispatcher));
        CHECK(dispatcher.epoch() == 2);
        const std::lock_guard lock(mutex);
        seen.insert(seen.end(), mine.begin(), mine.end());
      });
      CAPTURE(peal::concat(before, " ranks to ", after, ", batch ", at));
      // But for those that fill up the last round.
      CHECK(std::ssize(seen) < 24 + after);
      seen = sorted(seen);
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      REQUIRE(seen == up_to(24));
    }
  }
}

TEST_CASE("a dispatched epoch of another seed is refused, and one without a seed goes on") {
  const auto with_seed = [](const peal::comm::ProcessGroup& group, std::uint64_t seed) {
    return Dispatcher(group, group.rank() == 0 ? std::make_shared<Drawn>(12) : nullptr,
                      LoaderOptions{.batch_size = 2, .shuffle = true, .seed = seed});
  };
  ranks(1, [&](const peal::comm::ProcessGroup& group) {
    Dispatcher first = with_seed(group, 9), same = with_seed(group, 9), other = with_seed(group, 8);
    rest_of(first, 2);
    peal::NamedTensors state = first.state_dict();
    check_has(error_of([&] { other.load_state_dict(state); }),
              "seed: expected 8, as of this dispatcher, got 9");
    std::erase_if(
        state, [](const auto& entry) { return entry.first == "seed" || entry.first == "samples"; });
    same.load_state_dict(state);
    CHECK(rest_of(same) == rest_of(first));
  });
}

TEST_CASE("between epochs an order that is drawn goes on after one that is not") {
  ranks(2, [](const peal::comm::ProcessGroup& group) {
    const auto of = [&](bool shuffle) {
      return Dispatcher(group, group.rank() == 0 ? std::make_shared<Drawn>(8) : nullptr,
                        LoaderOptions{.batch_size = 2, .shuffle = shuffle, .seed = 9});
    };
    for (const bool before : {false, true}) {
      Dispatcher saved = of(before), later = of(!before), expected = of(!before);
      rest_of(saved);
      later.load_state_dict(saved.state_dict());
      expected.set_epoch(1);
      CHECK(rest_of(later) == rest_of(expected));
    }
  });
}

TEST_CASE("a dispatched epoch of a set that has grown is refused") {
  ranks(1, [&](const peal::comm::ProcessGroup& group) {
    const auto over = [&](std::int64_t size) {
      return Dispatcher(group, std::make_shared<Drawn>(size),
                        LoaderOptions{.batch_size = 2, .shuffle = true, .seed = 9});
    };
    Dispatcher first = over(12), more = over(13);
    more.load_state_dict(first.state_dict());
    rest_of(first, 2);
    check_has(error_of([&] { more.load_state_dict(first.state_dict()); }),
              "samples: expected 13, as of this dispatcher, got 12");
  });
}

TEST_CASE("a loader with a plan of its own goes on in its world, and in no other") {
  const auto by_loader = [](const peal::comm::ProcessGroup& group) {
    const auto plan = [world = group.world()](std::int64_t) {
      return peal::data::dispatch_order(peal::data::in_batches(up_to(12), 2), 2, world);
    };
    return Dispatcher(group, group.rank() == 0
                                 ? std::make_unique<DataLoader>(std::make_shared<Drawn>(12), plan)
                                 : nullptr);
  };
  peal::NamedTensors state;
  ranks(2, [&](const peal::comm::ProcessGroup& group) {
    Dispatcher first = by_loader(group), second = by_loader(group);
    CHECK(first.size() == 3);
    rest_of(first, 1);
    second.load_state_dict(first.state_dict());
    if (group.rank() == 0) state = first.state_dict();
    CHECK(rest_of(second) == rest_of(first));
    second.skip_first_batches(2);
    CHECK(rest_of(second) == (group.rank() == 0 ? Batches{{8, 9}} : Batches{{10, 11}}));
  });
  ranks(3, [&](const peal::comm::ProcessGroup& group) {
    Dispatcher other = by_loader(group);
    check_has(error_of([&] { other.load_state_dict(state); }),
              "it was saved on 2 ranks, and here are 3");
  });
}

TEST_CASE("the batches of a stream go to the ranks in turn, whatever their shapes") {
  for (const bool drop_last : {false, true}) {
    ranks(3, [&](const peal::comm::ProcessGroup& group) {
      const int rank = group.rank();
      const auto make = [&](std::int64_t count) {
        return Dispatcher::of_stream(group, rank == 0 ? stream(count) : nullptr, drop_last);
      };
      Dispatcher seven = make(7), six = make(6), none = make(0), two = make(2);
      for (int epoch = 0; epoch < 2; ++epoch) {
        CHECK(seven.epoch() == epoch);
        const Batches mine = rest_of(seven);
        Samples expected{rank, 3 + rank};
        if (!drop_last) expected.push_back(Samples{6, 0, 1}[static_cast<std::size_t>(rank)]);
        CHECK(firsts(mine) == expected);
        for (const Samples& batch : mine) CHECK(std::ssize(batch) == batch[0] + 1);
        CHECK(firsts(rest_of(six)) == Samples{rank, 3 + rank});
        CHECK(rest_of(none).empty());
        CHECK(firsts(rest_of(two)) == (drop_last ? Samples{} : Samples{rank % 2}));
      }
      check_has(error_of([&] { seven.size(); }), "a stream does not say how many batches it has");
      seven.set_epoch(2);
      rest_of(seven, 1);
      check_has(error_of([&] { seven.set_epoch(0); }), "it is in epoch 2 after 3 batches");
      seven.skip_first_batches(1);
      CHECK(rest_of(seven).size() == (drop_last ? 0 : 1));
      check_has(error_of([&] { six.skip_first_batches(3); }),
                "the stream ended with 1 batches still to skip");
      CHECK(six.epoch() == 3);  // the pass that it has read comes to its end with that
      check_has(error_of([&] { six.skip_first_batches(-1); }),
                "expected 0 or more batches to skip, got -1");
      CHECK(firsts(rest_of(six)) == Samples{rank, 3 + rank});
      CHECK(six.epoch() == 4);
    });
  }
}

TEST_CASE("a stream is taken up after what was read of it, in another world too") {
  peal::NamedTensors state;
  std::mutex mutex;
  Samples seen;
  ranks(2, [&](const peal::comm::ProcessGroup& group) {
    const auto source = [&] { return group.rank() == 0 ? stream(9) : nullptr; };
    Dispatcher first = Dispatcher::of_stream(group, source());
    rest_of(first);
    const Samples mine = firsts(rest_of(first, 2));
    Dispatcher again = Dispatcher::of_stream(group, source());
    again.load_state_dict(first.state_dict());
    CHECK(again.epoch() == 1);
    const std::lock_guard lock(mutex);
    seen.insert(seen.end(), mine.begin(), mine.end());
    if (group.rank() == 0) state = first.state_dict();
  });
  ranks(2, [&](const peal::comm::ProcessGroup& group) {
    Dispatcher same = Dispatcher::of_stream(group, group.rank() == 0 ? stream(9) : nullptr);
    same.load_state_dict(state);
    CHECK(firsts(rest_of(same)) == (group.rank() == 0 ? Samples{4, 6, 8} : Samples{5, 7, 0}));
    check_has(error_of([&] {
                Dispatcher::of_stream(group, group.rank() == 0 ? stream(3) : nullptr)
                    .load_state_dict(state);
              }),
              "the stream ended after 3 batches, and it had been left after 4");
  });
  ranks(5, [&](const peal::comm::ProcessGroup& group) {
    Dispatcher other = Dispatcher::of_stream(group, group.rank() == 0 ? stream(9) : nullptr);
    other.load_state_dict(state);
    const Samples mine = firsts(rest_of(other));
    CHECK(other.epoch() == 2);
    const std::lock_guard lock(mutex);
    seen.insert(seen.end(), mine.begin(), mine.end());
  });
  CHECK(sorted(seen) == up_to(9));
}

TEST_CASE("what it refuses of sets and streams") {
  check_has(error_of([] {
              Dispatcher(peal::comm::ProcessGroup::alone(), std::make_shared<Drawn>(3),
                         LoaderOptions{.exact = true});
            }),
            "leave out shard, way and exact");
  check_has(error_of([] {
              ranks(2, [](const peal::comm::ProcessGroup& group) {
                Dispatcher(group, std::make_shared<Drawn>(3), LoaderOptions{});
              });
            }),
            "rank 1 has a data set; rank 0 reads, and no other");
  check_has(error_of([] { Dispatcher::of_stream(peal::comm::ProcessGroup::alone(), nullptr); }),
            "rank 0 has no stream");
}
