// SPDX-License-Identifier: Apache-2.0
// The process group: what it refuses, what it leaves behind, and that calls which differ between
// ranks never pass unseen.
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>
#include <peal/tests/folder.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::failure;

namespace {

// The threads transport, and whether it is there.
class Alive : public ThreadsTransport {
 public:
  Alive(std::shared_ptr<Switchboard> board, int rank, std::atomic<int>& alive)
      : ThreadsTransport(std::move(board), rank), alive_(alive) {
    ++alive_;
  }
  ~Alive() override { --alive_; }
  bool test(Ticket ticket) override {
    ++tests;
    return ThreadsTransport::test(ticket);
  }

  int tests = 0;

 private:
  std::atomic<int>& alive_;
};

}  // namespace

TEST_CASE("ranks whose options differ are turned away at start-up, and leave nothing behind") {
  constexpr int world = 3;
  const auto switchboard = std::make_shared<Switchboard>(world);
  const auto board = Board::in_memory(world);
  std::vector<int> everyone(world);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::atomic<int> alive{0}, told{0};
  std::vector<std::shared_ptr<Engine>> engines(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    auto& engine = engines[static_cast<std::size_t>(rank)] = std::make_shared<Engine>(true);
    threads.emplace_back([&, rank] {
      try {
        make_group(std::make_unique<Alive>(switchboard, rank, alive),
                   std::make_unique<Control>(board, rank, everyone, std::vector<Peer>{}), engine,
                   {.algorithms = rank == 2 ? "all_reduce=ring" : ""});
      } catch (const Error& error) {
        const std::string text = error.what();
        told += contains(text, "in common at start-up") && contains(text, "rank 2") &&
                contains(text, "all_reduce=ring");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(told == world);
  CHECK(alive == 0);  // though the engines live on
}

TEST_CASE("a rank that lets go of its last group with a collective in flight tells the others") {
  const auto switchboard = std::make_shared<Switchboard>(2);
  const auto board = Board::in_memory(2);
  std::atomic<bool> made{false}, gone{false};
  std::string errors[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const Tensor data = Tensor::zeros({64});
      ProcessGroup group =
          make_group(std::make_unique<ThreadsTransport>(switchboard, rank),
                     std::make_unique<Control>(board, rank, std::vector{0, 1}, std::vector<Peer>{}),
                     std::make_shared<Engine>(true), {.deadline = std::chrono::seconds(30)});
      if (rank == 1) {
        made = true;
        while (!gone) std::this_thread::yield();
        errors[1] = error_of([&] { group.all_reduce(data).wait(); });
        return;
      }
      while (!made) group.progress();
      const Work work = group.all_reduce(data);
      group = {};
      gone = true;
      errors[0] = error_of([&] { work.wait(); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(contains(error, "rank 0 let go of its last process group with all_reduce #"));
    CHECK(contains(error, "in flight; wait for it first"));
  }
}

TEST_CASE("posting many messages asks for each of them once, not for all that are under way") {
  constexpr int messages = 300;
  const auto switchboard = std::make_shared<Switchboard>(2);
  const auto board = Board::in_memory(2);
  std::atomic<int> alive{0}, ready{0};
  int tests = 0;
  const auto run = [&](int rank) {
    auto transport = std::make_unique<Alive>(switchboard, rank, alive);
    const Alive& counted = *transport;
    const ProcessGroup group = make_group(
        std::move(transport),
        std::make_unique<Control>(board, rank, std::vector<int>{0, 1}, std::vector<Peer>{}),
        std::make_shared<Engine>(true), {});
    if (rank == 0) {
      const int before = counted.tests;
      std::vector<P2POp> all;
      for (int i = 0; i < messages; ++i) all.push_back({Direction::recv, Tensor::zeros({1}), 1});
      const Work never = group.batch_isend_irecv(all);
      tests = counted.tests - before;
    }
    ++ready;
    while (ready < 2) std::this_thread::yield();
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  CHECK(tests >= 1);
  CHECK(tests <= 2 * messages);
}

TEST_CASE("a call that differs on one rank is never lost, though all ranks could go on") {
  for (const bool later : {false, true}) {
    CAPTURE(later);
    std::atomic<int> passed{0};
    const std::string message = failure(3, {}, [&](const ProcessGroup& group) {
      const Tensor data = Tensor::zeros({0});  // nothing travels, so that nobody waits
      group.broadcast(data, group.rank() == 1 ? 1 : 0, "the odd one").wait();
      for (int i = 0; later && i < 40; ++i) group.broadcast(data, 0).wait();
      ++passed;
    });
    CAPTURE(message);
    CHECK(passed == 3);
    CHECK(contains(message, "broadcast #"));
    CHECK(contains(message, "root 1"));
    CHECK(contains(message, "rank 1"));
    CHECK(contains(message, "same order"));
  }
}

TEST_CASE("buffers that overlap otherwise than in place are refused before anything is sent") {
  for (const int world : {1, 2}) {
    run_ranks(world, [&](const ProcessGroup& group) {
      const Tensor all = Tensor::zeros({64});
      const View view = all.view();
      const auto refuses = [](const std::function<Work()>& call) {
        CHECK_THROWS_WITH_AS((void)call(), doctest::Contains("overlap"), Error);
      };
      const std::uint64_t before = group.sequence();
      const int n = group.world();
      refuses([&] { return group.all_reduce(view.part(0, 8), view.part(4, 8), ReduceOp::sum); });
      refuses([&] {
        return group.all_gather(view.part(0, 8 * n), view.part(group.rank() * 8 + 1, 8));
      });
      refuses([&] {
        return group.reduce_scatter(view.part(group.rank() * 8 + 1, 8), view.part(0, 8 * n));
      });
      refuses([&] { return group.all_to_all(view.part(4, 8), view.part(0, 8)); });
      if (group.rank() == 0) {
        refuses([&] { return group.gather(view.part(0, 8 * n), view.part(3, 8)); });
        refuses([&] { return group.scatter(view.part(3, 8), view.part(0, 8 * n)); });
      }
      CHECK(group.sequence() == before);
      // In place is as ever.
      group.all_gather(view.part(0, 8 * n), view.part(group.rank() * 8, 8)).wait();
      group.reduce_scatter(view.part(group.rank() * 8, 8), view.part(0, 8 * n)).wait();
      group.all_gather(view.part(0, 8 * n), view.part(32, 8)).wait();
    });
  }
}

TEST_CASE("ranges of PEAL_ALGO are bytes a rank, for all_to_all too") {
  const peal::testing::Folder folder;
  // 4 ranks, each with 16 elements for all of them together: 64 bytes a rank.
  run_ranks(4,
            {.algorithms = "all_to_all=bruck:0-64;pairwise:65-max", .trace = folder.path.string()},
            [](const ProcessGroup& group) {
              for (const std::int64_t count : {16, 20}) {
                const Tensor in = Tensor::zeros({count}), out = Tensor::zeros({count});
                group.all_to_all(out, in).wait();
              }
            });
  std::ifstream file(folder.path / "rank-0.trace");
  std::vector<std::string> ran;
  for (std::string line; std::getline(file, line);) {
    if (!contains(line, " all_to_all #")) continue;
    ran.push_back(contains(line, " bruck ")      ? "bruck"
                  : contains(line, " pairwise ") ? "pairwise"
                                                 : line);
  }
  CHECK(ran == std::vector<std::string>{"bruck", "pairwise"});
}
