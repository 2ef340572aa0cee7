// SPDX-License-Identifier: Apache-2.0
// SIGTERM as a wish: all ranks hear of it after one call, twice at once is one, and a later one
// ends the process. Programs that see to it themselves are left alone.
#include <peal/comm/start/threads.h>
#include <peal/launch/training/termination.h>

#include <csignal>
#include <functional>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace peal;
using launch::Termination;

namespace {

// What becomes of a process that does that, as waitpid() says it; 0 where it was true.
int end_of(const std::function<bool()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGTERM, SIG_DFL);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

bool is_terminated(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM; }

comm::ProcessGroup alone() { return comm::ProcessGroup::alone(); }

}  // namespace

TEST_CASE("all ranks hear of it after the same call") {
  ::signal(SIGTERM, SIG_DFL);  // which is doctest's
  for (const int world : {1, 2, 3, 5}) {
    CAPTURE(world);
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      Termination termination(group);
      for (int call = 0; call < 3; ++call) CHECK(!termination.asked());
      group.barrier().wait();
      if (group.rank() == world - 1) ::raise(SIGTERM);
      group.barrier().wait();
      CHECK(!termination.asked());  // what was asked before is heard first
      for (int call = 0; call < 3; ++call) CHECK(termination.asked());
      group.barrier().wait();  // one that has gone would end the process
    });
  }
}

TEST_CASE("what comes twice at once is one wish, and another one ends the process") {
  CHECK(end_of([] {
          const auto group = alone();
          Termination termination(group);
          for (int i = 0; i < 3; ++i) ::raise(SIGTERM);
          return !termination.asked() && termination.asked();
        }) == 0);
  CHECK(is_terminated(end_of([] {
    const auto group = alone();
    const Termination termination(group);
    ::raise(SIGTERM);
    ::usleep(1'050'000);
    ::raise(SIGTERM);
    return true;
  })));
}

TEST_CASE("a wish that nobody has heard of is not lost") {
  CHECK(is_terminated(end_of([] {
    const auto group = alone();
    { const Termination termination(group); }
    {
      const Termination termination(group);
      ::raise(SIGTERM);
    }
    return true;
  })));
}

TEST_CASE("a child by fork and a program that sees to it itself are as they were") {
  CHECK(end_of([] {
          const auto group = alone();
          const Termination termination(group);
          const pid_t child = ::fork();
          if (child == 0) {
            ::raise(SIGTERM);
            ::_exit(0);
          }
          int status = 0;
          ::waitpid(child, &status, 0);
          return is_terminated(status);
        }) == 0);
  CHECK(end_of([] {
          ::signal(SIGTERM, SIG_IGN);
          const auto group = alone();
          Termination termination(group);
          ::raise(SIGTERM);
          return !termination.asked() && !termination.asked();
        }) == 0);
}
