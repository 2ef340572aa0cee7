// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one rank of a dispatcher all hear at once, and what rank 0 keeps for the
// others.
#include <doctest/doctest.h>
#include <malloc.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/tests/data/drawn.h>
#include <peal/tests/errors.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace peal::testing;
using peal::data::LoaderOptions;
using peal::launch::Dispatcher;

namespace {

using Group = peal::comm::ProcessGroup;

// A sample of it cannot be read.
struct Broken : Drawn {
  Broken(std::int64_t n, std::int64_t at) : Drawn(n), broken(at) {}
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
    for (const std::int64_t index : indices) {
      if (index == broken) throw peal::Error("cannot read it");
    }
    return Drawn::augmented(indices, draws);
  }
  std::int64_t broken;
};

// What f fails with on each rank. None leaves before all have failed, so none hears it by that.
std::vector<std::string> failures(int world, const std::function<void(const Group&)>& f) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  std::barrier all(world);
  const auto rank = [&](const Group& group) {
    try {
      f(group);
    } catch (const peal::Error& error) {
      texts[static_cast<std::size_t>(group.rank())] = error.what();
    }
    all.arrive_and_wait();
  };
  try {
    peal::comm::run_ranks(world, {.deadline = std::chrono::seconds(10)}, rank);
  } catch (const peal::Error&) {  // the same once more, where it has ended the group
  }
  return texts;
}

void check_all(const std::vector<std::string>& texts, const std::string& what) {
  for (const std::string& text : texts) check_has(text, what);
}

std::shared_ptr<Drawn> on_rank_0(const Group& group, std::shared_ptr<Drawn> set) {
  return group.rank() == 0 ? std::move(set) : nullptr;
}

}  // namespace

TEST_CASE("a sample that rank 0 cannot read ends the epoch on every rank, whosever it is") {
  for (const std::int64_t broken : {6, 8, 10}) {  // of the second round
    for (const int workers : {0, 1}) {
      check_all(failures(3,
                         [&](const Group& group) {
                           Dispatcher batches(
                               group, on_rank_0(group, std::make_shared<Broken>(24, broken)),
                               LoaderOptions{.batch_size = 2, .workers = workers});
                           while (batches.next()) {
                           }
                         }),
                peal::concat("[data] sample ", broken));
    }
  }
}

TEST_CASE("a stream's error is everybody's") {
  check_all(failures(2,
                     [](const Group& group) {
                       std::function<std::optional<Batch>()> source;
                       if (group.rank() == 0) {
                         source = [k = 0]() mutable -> std::optional<Batch> {
                           if (++k == 3) throw peal::Error("the line is cut");
                           return Batch{Tensor::zeros({1}), Tensor()};
                         };
                       }
                       Dispatcher batches = Dispatcher::of_stream(group, source);
                       while (batches.next()) {
                       }
                     }),
            "the line is cut");
}

TEST_CASE("what a stream throws that is no std::exception is everybody's, too") {
  for (const bool skips : {false, true}) {
    check_all(failures(2,
                       [&](const Group& group) {
                         std::function<std::optional<Batch>()> source;
                         if (group.rank() == 0) {
                           source = []() -> std::optional<Batch> { throw 7; };
                         }
                         Dispatcher batches = Dispatcher::of_stream(group, source);
                         try {
                           skips ? batches.skip_first_batches(1) : void(batches.next());
                         } catch (int) {
                           group.check();  // has told the others
                         }
                       }),
              "an exception that is no std::exception");
  }
}

TEST_CASE("what one rank gives wrongly all hear before any waits for it") {
  const auto set = std::make_shared<Drawn>(24);
  check_all(failures(3, [&](const Group& group) { Dispatcher(group, set, LoaderOptions{}); }),
            "rank 1 has a data set; rank 0 reads, and no other");
  check_all(failures(3,
                     [&](const Group& group) {
                       Dispatcher(group, group.rank() == 2 ? set : nullptr, LoaderOptions{});
                     }),
            "rank 0 has no data set");
  check_all(failures(2,
                     [&](const Group& group) {
                       LoaderOptions options;
                       options.exact = group.rank() == 1;
                       Dispatcher(group, on_rank_0(group, set), options);
                     }),
            "leave out shard, way and exact");
  check_all(failures(2,
                     [&](const Group& group) {
                       Dispatcher(group, on_rank_0(group, set),
                                  LoaderOptions{.batch_size = group.rank()});
                     }),
            "expected a batch_size of at least 1, got 0");
}

TEST_CASE("an epoch that rank 0's plan has not is everybody's error") {
  check_all(failures(3,
                     [](const Group& group) {
                       const auto plan = [](std::int64_t epoch) -> peal::data::PlannedBatches {
                         PEAL_CHECK(epoch == 0, "there is no epoch ", epoch);
                         return peal::data::Batches{{0}, {1}, {2}};
                       };
                       std::unique_ptr<peal::data::DataLoader> reader;
                       if (group.rank() == 0) {
                         reader = std::make_unique<peal::data::DataLoader>(
                             std::make_shared<Drawn>(3), plan, LoaderOptions{});
                       }
                       Dispatcher batches(group, std::move(reader));
                       batches.set_epoch(1);
                     }),
            "there is no epoch 1");
}

TEST_CASE("rank 0 keeps one order, however many ranks it reads for") {
  constexpr std::int64_t samples = 400'000, order = samples * 8;
  const auto held = [] {
    const auto info = mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  };
  peal::comm::run_ranks(8, {.deadline = std::chrono::minutes(1)}, [&](const Group& group) {
    Dispatcher batches(group, on_rank_0(group, std::make_shared<Drawn>(samples)),
                       LoaderOptions{.shuffle = true});
    group.barrier().wait();
    const std::int64_t before = held();
    REQUIRE(batches.next());
    group.barrier().wait();
    CHECK(held() - before < 3 * order);
  });
}
