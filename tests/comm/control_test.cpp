// SPDX-License-Identifier: Apache-2.0
// The control plane, where processes die at the worst moment, or work for long.
#include <peal/autograd/core/error.h>
#include <peal/comm/control/control.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/nameless_files.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::wait_until;
using std::chrono::milliseconds;

namespace {

int names_taken = 0;  // so many shm_open() find that somebody has the name

class Alone : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  std::vector<std::string> exchange(const std::string& mine) override { return {mine}; }
};

std::shared_ptr<Board> shared_board(int world) {
  Alone store;
  return Board::shared(store, world);
}

std::size_t open_files() {
  using std::filesystem::directory_iterator;
  return static_cast<std::size_t>(
      std::distance(directory_iterator("/proc/self/fd"), directory_iterator{}));
}

// A child of this process, killed at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& f) : pid_(fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    f();
    for (;;) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int pid() const { return pid_; }
  void end() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

}  // namespace

// The system's own, but for names that are taken.
extern "C" int shm_open(const char* name, int flags, mode_t mode) {
  if (names_taken > 0 && (flags & O_EXCL) != 0) {
    --names_taken;
    errno = EEXIST;
    return -1;
  }
  using Call = int(const char*, int, mode_t);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "shm_open"))(name, flags, mode);
}

TEST_CASE("a rank that dies while it poisons keeps nobody else from it") {
  const auto board = shared_board(2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL);
    // A message that cannot be read: this process dies as it writes it.
    const std::string message(std::size_t{1} << 22, 'x');
    const auto at = reinterpret_cast<std::uintptr_t>(message.data()) & ~std::uintptr_t{4095};
    mprotect(reinterpret_cast<void*>(at), 8192, PROT_NONE);
    board->poison(message);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(!board->poisoned());
  board->poison("rank 1 is on fire");
  CHECK(board->poisoned() == "rank 1 is on fire");
  board->poison("rank 0 as well");
  CHECK(board->poisoned() == "rank 1 is on fire");
}

TEST_CASE("of many that poison at once one wins, and its message is whole") {
  for (int round = 0; round < 20; ++round) {
    const auto board = Board::in_memory(1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 24; ++i) {
      threads.emplace_back([&, i] {
        board->poison(std::string(static_cast<std::size_t>(1000 + i), static_cast<char>('a' + i)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto message = board->poisoned();
    REQUIRE(message);
    REQUIRE(!message->empty());
    const char letter = message->front();
    CHECK(*message == std::string(static_cast<std::size_t>(1000 + letter - 'a'), letter));
  }
  const auto board = Board::in_memory(1);
  board->poison(std::string(10'000, 'y'));
  CHECK(board->poisoned() == std::string(2047, 'y'));
}

TEST_CASE("a board takes another name where one is taken, and removes only its own") {
  peal::testing::nameless_refusal = EOPNOTSUPP;
  names_taken = 3;
  const auto board = shared_board(1);
  CHECK(names_taken == 0);
  board->poison("there");
  CHECK(board->poisoned() == "there");
  names_taken = 1000;
  CHECK(contains(error_of([] { (void)shared_board(1); }), "File exists"));
  names_taken = 0;
  peal::testing::nameless_refusal = 0;
}

TEST_CASE("groups within a group watch processes through the same descriptors") {
  const Child one([] {}), two([] {});
  const Control whole(Board::in_memory(3), 0, {0, 1, 2}, {{1, one.pid()}, {2, two.pid()}});
  const std::size_t before = open_files();
  std::vector<std::unique_ptr<Control>> parts;
  for (int i = 0; i < 50; ++i) {
    parts.push_back((i == 0 ? whole : *parts.back()).subset({0, 1}));
  }
  CHECK(open_files() == before);
}

TEST_CASE("a sub-group outlives the group it is of, and sees who dies") {
  Child peer([] {});
  auto whole = std::make_unique<Control>(Board::in_memory(2), 0, std::vector{0, 1},
                                         std::vector{Peer{1, peer.pid()}});
  const auto part = whole->subset({0, 1});
  whole.reset();
  part->check();
  const std::string name = concat("rank 1 (process ", peer.pid(), ") has died");
  peer.end();
  std::string error = "nothing";
  wait_until([&] { return (error = error_of([&] { part->check(); })) != "nothing"; });
  CHECK(contains(error, name));
}

TEST_CASE("calls alike after calls that differed are told apart in words") {
  const auto board = Board::in_memory(2);
  const std::vector<Peer> nobody;
  const Control first(board, 0, {0, 1}, nobody), second(board, 1, {0, 1}, nobody);
  Row mine;
  mine.group = 5;
  mine.sequence = 7;
  mine.signature = 1;
  std::strcpy(mine.text, "all_reduce #7");
  Row theirs = mine;
  theirs.signature = 2;
  board->publish(0, mine);
  board->publish(1, theirs);
  const auto in_words = [](const Finished&, std::uint64_t) { return std::string(); };
  const std::string text =
      "rank 0 is in all_reduce #7, but rank 1 is in all_reduce #7, and these differ in their "
      "parts, "
      "or those before them: ";
  CHECK(contains(error_of([&] { first.compare(mine, in_words); }), text));
  CHECK(contains(error_of([&] { second.compare(theirs, in_words); }), text));
}

TEST_CASE("a row that was taken back differs from nobody's, the world's first call neither") {
  const auto board = Board::in_memory(2);
  const Control first(board, 0, {0, 1}, std::vector<Peer>{});
  Row mine;  // group 0, number 0
  mine.signature = 1;
  std::strcpy(mine.text, "all_gather #0");
  board->publish(1, mine);
  board->publish(1, {});
  const auto in_words = [](const Finished&, std::uint64_t) { return std::string(); };
  CHECK(error_of([&] { first.compare(mine, in_words); }) == "nothing");
}

TEST_CASE("who says that it works is waited for past the deadline, and not once it is done") {
  const ProcessGroup::Options options{.deadline = milliseconds(2000)};
  std::atomic<bool> works{false};
  run_ranks(2, options, [&](const ProcessGroup& group) {
    const Tensor sum = Tensor::from(std::vector<float>{1, 2, 3}, {3});
    if (group.rank() == 0) {
      const auto busy = group.busy();
      works = true;
      std::this_thread::sleep_for(milliseconds(3000));
      group.all_reduce(sum).wait();
    } else {
      wait_until([&] { return works.load(); });
      group.all_reduce(sum).wait();
    }
    CHECK(sum.to_vector<float>() == std::vector<float>{2, 4, 6});
  });
  const std::string error = error_of([&] {
    run_ranks(2, options, [](const ProcessGroup& group) {
      if (group.rank() == 0) {
        { const auto busy = group.busy(); }
        wait_until([&] { return group.poisoned(); });
        return;
      }
      group.all_reduce(Tensor::zeros({3})).wait();
    });
  });
  CAPTURE(error);
  CHECK(contains(error, "has not moved for 2 s (PEAL_TIMEOUT)"));
}

TEST_CASE("a rank that dies at its work is no reason to wait") {
  const auto board = shared_board(2);
  Child worker([&] { board->begin_work(1); });
  Control control(board, 0, {0, 1}, {{1, worker.pid()}});
  wait_until([&] { return control.anyone_works(); });
  CHECK(contains(control.describe(), "rank 1: works"));
  CHECK(error_of([&] { control.check(); }) == "nothing");
  worker.end();
  std::string error = "nothing";
  wait_until([&] { return (error = error_of([&] { control.check(); })) != "nothing"; });
  CHECK(contains(error, "has died"));
}

TEST_CASE("a rank that is stopped at its work is not waited for") {
  const auto board = shared_board(2);
  Child worker([&] { board->begin_work(1); });
  const Control control(board, 0, {0, 1}, {{1, worker.pid()}});
  wait_until([&] { return control.anyone_works(); });
  kill(worker.pid(), SIGSTOP);
  wait_until([&] { return !control.anyone_works(); });
  CHECK(contains(control.describe(),
                 concat("rank 1: its process (", worker.pid(), ") stands still, stopped by")));
  kill(worker.pid(), SIGCONT);
  wait_until([&] { return control.anyone_works(); });
  CHECK(contains(control.describe(), "rank 1: works"));
}

TEST_CASE("a sub-group's switchboard goes with the last of its ranks") {
  Switchboard board(4);
  auto first = board.child(7, 2);
  CHECK(board.child(7, 2) == first);
  CHECK(board.child(8, 2) != first);
  const std::weak_ptr<Switchboard> gone = first;
  first.reset();
  CHECK(gone.expired());
}

TEST_CASE("of ranks that end with one message the one whose it is tells it, and others their own") {
  const auto board = Board::in_memory(3);
  std::vector<std::unique_ptr<Control>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(
        std::make_unique<Control>(board, rank, std::vector<int>{0, 1, 2}, std::vector<Peer>{}));
  }
  CHECK(ranks[0]->is_to_tell("before anything"));
  ranks[2]->poison("rank 2 is on fire");
  CHECK(board->poisoner() == 2);
  CHECK(ranks[0]->is_to_tell("something else"));
  CHECK(ranks[2]->is_to_tell("rank 2 is on fire; run"));
  for (const auto& rank : ranks) CHECK_FALSE(rank->is_to_tell("rank 2 is on fire"));
  // Where that one is silent, another tells it.
  const auto second = Board::in_memory(2);
  Control one(second, 0, {0, 1}, std::vector<Peer>{}),
      other(second, 1, {0, 1}, std::vector<Peer>{});
  one.poison("gone");
  CHECK(other.is_to_tell("gone"));
  CHECK_FALSE(one.is_to_tell("gone"));
}

TEST_CASE("of ranks that see a death one tells it, and who tells waits for nobody") {
  const auto board = Board::in_memory(3);
  Child peer([] {});
  const std::vector<Peer> processes{{2, peer.pid()}};
  const std::string death = concat("[comm] rank 2 (process ", peer.pid(), ") has died");
  Control one(board, 0, {0, 1, 2}, processes), other(board, 1, {0, 1, 2}, processes);
  peer.end();
  std::string mine = "nothing", theirs = "nothing";
  wait_until([&] { return (mine = error_of([&] { one.check(); })) != "nothing"; });
  wait_until([&] { return (theirs = error_of([&] { other.check(); })) != "nothing"; });
  CHECK(contains(mine, death));
  CHECK(mine == theirs);
  CHECK(board->poisoner() == 0);
  CHECK(one.is_to_tell(mine));
  CHECK_FALSE(other.is_to_tell(theirs));
}

TEST_CASE("a rank that leaves after a failure waits until the others do, or are gone") {
  const auto board = shared_board(3);
  Child leaves([&] { board->leave(1); }), dies([] {}), stays([] {});
  const Control control(board, 0, {0, 1, 2}, {{1, leaves.pid()}, {2, dies.pid()}});
  CHECK_FALSE(board->has_left(0));
  dies.end();
  control.leave(std::chrono::hours(1));  // as long as the test may take
  CHECK(board->has_left(0));
  const auto other = shared_board(2);
  const Control alone(other, 0, {0, 1}, {{1, stays.pid()}});
  alone.leave(milliseconds(20));
  CHECK(other->has_left(0));
  CHECK_FALSE(other->has_left(1));
}
