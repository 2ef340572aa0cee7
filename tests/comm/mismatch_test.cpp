// SPDX-License-Identifier: Apache-2.0
// Ranks whose calls differ, in memory, by messages, and between nodes: all are told who calls what.
#include <peal/comm/start/threads.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include "mail_ranks.h"
#include "mismatch_cases.h"
#include "over_queues.h"
#include "process_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::comm::testing;
using namespace peal::testing;

namespace {

using OnGroup = std::function<void(const ProcessGroup&)>;

// What each of three ranks that are threads has thrown.
template <class Run>
std::vector<std::string> errors_of(const Run& run, const OnGroup& f) {
  std::vector<std::string> errors(3);
  const std::string first = error_of([&] {
    run([&](const ProcessGroup& group) {
      std::string& error = errors[static_cast<std::size_t>(group.rank())];
      error = error_of([&] { f(group); });
      throw Error(error);
    });
  });
  CHECK(first != "nothing");
  return errors;
}

}  // namespace

// First, for it makes children: of a process that has no threads yet.
TEST_CASE("processes whose calls differ are all told who calls what, on one node and on two") {
  for (const int on_a_node : {0, 2}) {
    std::deque<Processes> runs;
    for (const Mismatch& mismatch : mismatches()) {
      runs.emplace_back(
          3, before_the_deadline,
          [&](const ProcessGroup& group) { mismatch.run(group, group.rank() == 2, Device{}); },
          on_a_node);
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto errors = runs[i].ends();
      const std::string_view where = on_a_node == 0 ? "processes" : "processes on two nodes";
      MESSAGE(where << ", " << mismatches()[i].what << ": " << errors[0]);
      for (const std::string& error : errors) check_mismatch(mismatches()[i], error);
    }
  }
}

TEST_CASE("threads whose calls differ are all told who calls what, in memory and by messages") {
  for (const bool shared : {true, false}) {
    ProcessGroup::Options options = before_the_deadline;
    options.shared_memory = shared;
    check_mismatches(shared ? "threads" : "threads by messages", [&](const OnGroup& f) {
      return errors_of([&](const OnGroup& one) { run_ranks(3, options, one); }, f);
    });
  }
}

TEST_CASE("over TCP ranks whose calls differ are all told who calls what, on two nodes and three") {
  for (const Lines kind : {Lines::both, Lines::tcp}) {
    ProcessGroup::Options options = before_the_deadline;
    options.shared_memory = false;  // boards are of the nodes; windows would be of all
    check_mismatches(kind == Lines::both ? "TCP, two nodes" : "TCP, three nodes",
                     [&](const OnGroup& f) { return on_mailrooms(kind, 3, options, f, false); });
  }
}

TEST_CASE("over the queues of devices ranks whose calls differ are all told who calls what") {
  check_mismatches("queues of devices", [&](const OnGroup& f) {
    return errors_of([&](const OnGroup& one) { over_queues(3, before_the_deadline, one); }, f);
  });
}
