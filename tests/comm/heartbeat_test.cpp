// SPDX-License-Identifier: Apache-2.0
// Ranks of other nodes that work, stand still or are gone.
#include <peal/comm/control/heartbeat.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
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
