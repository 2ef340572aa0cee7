// SPDX-License-Identifier: Apache-2.0
// Ranks of other nodes that work, stand still or are gone.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/told_here.h>
#include <peal/comm/control/far_board.h>
#include <peal/comm/control/heartbeat.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "failing_run.h"
#include "process_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;
using std::chrono::milliseconds;

namespace {

const ProcessGroup::Options impatient{.deadline = milliseconds(2000)};

// Rank 0 says that it works, then does `f`, while the others, each on its own node, wait.
std::function<void(const ProcessGroup&)> while_rank_0(const std::function<void()>& f) {
  return [f](const ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 0) {
      const auto busy = group.busy("downloads");
      f();
    }
    group.barrier().wait();
  };
}

void works_for(milliseconds time) { std::this_thread::sleep_for(time); }

// Rank 0's process does not come to an end by itself: it gets one once the others have theirs.
std::vector<std::string> ends_of(Processes& ranks, int world) {
  for (int rank = 1; rank < world; ++rank) {
    siginfo_t ended{};
    REQUIRE(waitid(P_PID, static_cast<id_t>(ranks.pid(rank)), &ended, WEXITED | WNOWAIT) == 0);
  }
  kill(ranks.pid(0), SIGKILL);
  return ranks.ends();
}

}  // namespace

TEST_CASE("a heart beats while somebody works, soon at first, and is still at once afterwards") {
  std::atomic<int> beats{0};
  Heartbeat heart([&] { ++beats; }, milliseconds(60));
  std::this_thread::sleep_for(milliseconds(100));
  CHECK(beats == 0);
  heart.begin();
  heart.begin();
  wait_until([&] { return beats >= 2; });
  heart.end();
  const int before = beats;
  wait_until([&] { return beats > before; });
  heart.end();
  const int last = beats;
  std::this_thread::sleep_for(milliseconds(150));
  CHECK(beats == last);
  heart.begin();
  wait_until([&] { return beats > last; });
  heart.end();
}

TEST_CASE("a heart that is stopped beats no more, whoever works") {
  std::atomic<int> beats{0};
  Heartbeat heart([&] { ++beats; }, milliseconds(5));
  heart.begin();
  wait_until([&] { return beats > 0; });
  heart.stop();
  const int last = beats;
  heart.begin();
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(beats == last);
  heart.end();
  heart.end();
}

TEST_CASE("a word that one works is of use until the next can have been heard") {
  using Work = FarBoard::Work;
  const auto ago = [](int ms) { return std::chrono::steady_clock::now() - milliseconds(ms); };
  CHECK(Work{"", ago(60), milliseconds(2)}.goes_on());  // it is listened for every 50 ms
  CHECK_FALSE(Work{"", ago(5000), milliseconds(2)}.goes_on());
  CHECK(Work{"", ago(2000), milliseconds(1000)}.goes_on());
  CHECK_FALSE(Work{"", ago(3500), milliseconds(1000)}.goes_on());
}

TEST_CASE("who still says that it works when its groups are gone beats no more") {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const Folder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(in_process([&, rank] {
      ::setenv("PEAL_NODE", concat(rank).c_str(), 1);
      const auto ranks = files_in(folder.path / "store")(rank, 2);
      const auto before = threads();
      std::shared_ptr<void> busy;
      {
        const ProcessGroup group = processes_group(*ranks, {.deadline = std::chrono::seconds(60)});
        if (rank == 0) busy = group.busy("outlives it");
        group.barrier().wait();
      }
      ranks->exchange("the end");
      wait_until([&] { return threads() == before; });
      busy.reset();
    }));
  }
  for (const pid_t child : children) CHECK(ended_well(child));
}

TEST_CASE("who works on another node is waited for, and not who stands still, or is gone") {
  Processes working(3, impatient, while_rank_0([] { works_for(milliseconds(4000)); }), 1);
  // Which once waited for the others, long enough to have said for what.
  const auto stops = while_rank_0([] {
    works_for(milliseconds(1000));
    raise(SIGSTOP);
  });
  Processes stopped(
      3, impatient,
      [stops](const ProcessGroup& group) {
        if (group.rank() != 0) works_for(milliseconds(1500));
        stops(group);
      },
      1);
  Processes killed(2, {.deadline = std::chrono::seconds(60)}, while_rank_0([] {
                     works_for(milliseconds(1000));
                     raise(SIGKILL);
                   }),
                   1);
  Processes silent(
      2, impatient,
      [](const ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 0) raise(SIGSTOP);
        group.barrier().wait();
      },
      1);
  for (const std::string& end : working.ends()) CHECK(end == "nothing");
  const auto of_stopped = ends_of(stopped, 3);
  for (const std::size_t rank : {1, 2}) {
    const std::string& said = of_stopped[rank];
    CAPTURE(said);
    CHECK(contains(said, "PEAL_TIMEOUT"));
    CHECK(contains(said, "rank 0, elsewhere: said "));
    CHECK(contains(said, "that it works (downloads), and nothing since"));
  }
  const auto of_killed = ends_of(killed, 2);
  CAPTURE(of_killed[1]);
  CHECK(contains(of_killed[1], "rank 0 ("));
  CHECK(contains(of_killed[1], "it is gone"));
  CHECK(contains(of_killed[1], "rank 0, elsewhere: works (downloads)"));
  const auto of_silent = ends_of(silent, 2);
  CAPTURE(of_silent[1]);
  CHECK(contains(of_silent[1], "PEAL_TIMEOUT"));
  CHECK(contains(of_silent[1], "rank 0, elsewhere: has said nothing"));
}

TEST_CASE("who waits at its work is kept from no deadline by its own word") {
  Processes waits(
      2, impatient,
      [](const ProcessGroup& group) {
        const Tensor x = Tensor::zeros({1}, DType::f32, Device{});
        if (group.rank() == 0) {
          const auto busy = group.busy("downloads");
          group.recv(x.view(), 1).wait();
        }
        group.barrier().wait();
      },
      1);
  for (const std::string& end : waits.ends()) {
    CAPTURE(end);
    CHECK(contains(end, "PEAL_TIMEOUT"));
  }
}

TEST_CASE("of several nodes whose ranks wait in one call one warns of the stall") {
  const Folder folder;
  const std::filesystem::path log = folder.path / "log";
  const ProcessGroup::Options options{.deadline = milliseconds(8000),
                                      .stall_warning = milliseconds(2000)};
  Processes ranks(
      4, options,
      [&](const ProcessGroup& group) {
        const int to = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        PEAL_CHECK(dup2(to, STDERR_FILENO) == STDERR_FILENO, "no log");
        group.barrier().wait();
        if (group.rank() == 3) works_for(milliseconds(3200));  // and does not say so
        group.barrier().wait();
      },
      1);
  for (const std::string& end : ranks.ends()) CHECK(end == "nothing");
  const std::string said = content_of(log);
  CAPTURE(said);
  std::size_t times = 0;
  for (auto at = said.find("has not moved for"); at != said.npos; ++times) {
    at = said.find("has not moved for", at + 1);
  }
  CHECK(times == 1);
  CHECK(contains(said, "[comm] rank 0: "));
  for (const int rank : {1, 2})
    CHECK(contains(said, concat("rank ", rank, ", elsewhere: barrier")));
  CHECK(contains(said, "rank 3, elsewhere: has said nothing"));
}

TEST_CASE("a warning that all ranks of a node have is told once on it, and counted") {
  const Folder folder;
  const std::filesystem::path log = folder.path / "log";
  Processes ranks(3, {.deadline = std::chrono::seconds(60)}, [&](const ProcessGroup& group) {
    const int to = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    PEAL_CHECK(dup2(to, STDERR_FILENO) == STDERR_FILENO, "no log");
    context().log_tag = concat("rank ", group.rank());
    for (int time = 0; time < 2; ++time) log_warning("rank ", group.rank(), " of 3 is slow");
    if (group.rank() == 2) log_warning("mine alone");
    group.barrier().wait();
    tell_repeated_warnings();
    group.barrier().wait();
  });
  for (const std::string& end : ranks.ends()) CHECK(end == "nothing");
  const std::string said = content_of(log);
  CAPTURE(said);
  CHECK(std::ranges::count(said, '\n') == 3);
  const auto first = said.find(" of 3 is slow\n");
  REQUIRE(first != said.npos);
  CHECK(contains(said.substr(first + 1), " of 3 is slow (x6: ranks 0-2)\n"));
  CHECK(contains(said, "[rank 2] warning: mine alone\n"));
}
