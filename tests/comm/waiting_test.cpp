// SPDX-License-Identifier: Apache-2.0
// Waiting with an end: Work::wait(timeout), abort(), monitored_barrier(), deadlines of groups, and
// the warning that something stalls.
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/folder.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using namespace std::chrono_literals;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::failure;
using peal::testing::stderr_of;
using peal::testing::wait_until;

namespace {

ProcessGroup::Options patient() {
  ProcessGroup::Options options;
  options.deadline = 60s;
  return options;
}

}  // namespace

TEST_CASE("who waits for so long at most is told what for, and may wait again") {
  for (const int world : {2, 3}) {
    std::atomic<bool> told{false};
    run_ranks(world, patient(), [&](const ProcessGroup& group) {
      const Tensor data = Tensor::from(std::vector<float>{1, 2}, {2});
      if (group.rank() == 1) wait_until([&] { return told.load(); });
      const Work work = group.all_reduce(data, ReduceOp::sum, "bucket 7");
      if (group.rank() == 0) {
        const std::string error = error_of([&] { work.wait(50ms); });
        CAPTURE(error);
        CHECK(contains(error, "rank 0: all_reduce #"));
        CHECK(contains(error, "bucket 7) is not done after the 0.05 s"));
        CHECK(contains(error, "what the ranks of this node wait for:\n  rank 0: all_reduce #"));
        CHECK(!group.poisoned());
        told = true;
      }
      work.wait(60s);
      CHECK(data.to_vector<float>() ==
            std::vector<float>{static_cast<float>(world), static_cast<float>(2 * world)});
    });
  }
}

TEST_CASE("who has given up may compute for longer than the deadline before it waits again") {
  // Of a group within the world, as ranks may come to the world's start at very different times.
  std::atomic<bool> computed{false}, issued{false};
  run_ranks(2, patient(), [&](const ProcessGroup& world) {
    const ProcessGroup group = world.new_group({0, 1}, 1s);
    const Tensor data = Tensor::from(std::vector<float>{1, 2}, {2});
    if (group.rank() == 1) wait_until([&] { return computed.load(); });
    const Work work = group.all_reduce(data);
    if (group.rank() == 1) issued = true;
    if (group.rank() == 0) {
      CHECK(contains(error_of([&] { work.wait(20ms); }), "is not done after the 0.02 s"));
      std::this_thread::sleep_for(1500ms);
      // It has not been waited for in between.
      CHECK(contains(error_of([&] { work.wait(20ms); }), "is not done after the 0.02 s"));
      computed = true;
      wait_until([&] { return issued.load(); });
    }
    work.wait();
    CHECK(data.to_vector<float>() == std::vector<float>{2, 4});
  });
  // What was waited for in parts has a deadline all the same.
  const std::string error = failure(2, patient(), [](const ProcessGroup& world) {
    const ProcessGroup group = world.new_group({0, 1}, 1s);
    if (group.rank() == 1) return wait_until([&] { return group.poisoned(); });
    const Work work = group.barrier();
    for (std::string said = "is not done after"; contains(said, "is not done after");) {
      said = error_of([&] { work.wait(100ms); });
    }
    work.wait();
  });
  CHECK(contains(error, "has not moved for 1 s (PEAL_TIMEOUT)"));
}

TEST_CASE("who waits for ever, or not at all, may say so by the largest and the smallest number") {
  run_ranks(2, patient(), [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    const Work last = group.rank() == 0 ? group.recv(data, 1) : Work();
    if (group.rank() == 0) {
      CHECK(contains(error_of([&] { last.wait(std::chrono::milliseconds::min()); }),
                     "is not done after"));
    }
    group.barrier().wait(std::chrono::milliseconds::max());
    group.monitored_barrier(std::chrono::milliseconds::max());
    if (group.rank() == 1) group.send(data, 0).wait(std::chrono::milliseconds::max());
    Work::all({last, group.barrier()}).wait(std::chrono::milliseconds::max());
  });
}

TEST_CASE("several works, and one after the other, are waited for together") {
  run_ranks(2, patient(), [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({8});
    Work::all({group.all_reduce(data), group.barrier()}).wait(60s);
    group.all_reduce(data).then([&] { return group.all_reduce(data); }).wait(60s);
    const Tensor one = Tensor::zeros({1}), other = one.clone();
    if (group.rank() == 0) {
      const Work none = group.recv(one, 1), also = group.recv(other, 1, 3);
      CHECK(contains(error_of([&] { Work::all({none, also}).wait(30ms); }), "recv from rank 1"));
      group.barrier().wait();
      Work::all({none, also}).wait(60s);
    } else {
      group.barrier().wait();
      group.send(one, 0, 3).wait();
      group.send(one, 0).wait();
    }
  });
}

TEST_CASE("a group that is aborted gives back what it has in flight, and tells all ranks why") {
  for (const int world : {2, 3, 5}) {
    const std::string error = failure(world, patient(), [&](const ProcessGroup& group) {
      const Tensor data = Tensor::zeros({1000});
      if (group.rank() == 0) {
        const Work work = group.recv(data, 1);
        group.abort("rank 0 gives up");
        CHECK(error_of([&] { work.wait(); }) == "rank 0 gives up");
        CHECK(group.poisoned());
      }
      group.all_reduce(data).wait();
    });
    CHECK(error == "rank 0 gives up");
  }
}

TEST_CASE("a monitored barrier lets all go, or names all that have not come") {
  for (const int world : {1, 2, 3, 5}) {
    run_ranks(world, patient(), [](const ProcessGroup& group) {
      for (int i = 0; i < 3; ++i) group.monitored_barrier(60s);
      const ProcessGroup part = group.new_group({group.world() - 1});
      if (part) part.monitored_barrier(60s);
    });
  }
  std::atomic<int> come{0};  // else rank 0 could count before those that come have come
  const std::string error = failure(5, patient(), [&](const ProcessGroup& group) {
    if (group.rank() == 2 || group.rank() == 4) wait_until([&] { return group.poisoned(); });
    if (group.rank() == 0) wait_until([&] { return come == 2; });
    ++come;
    group.monitored_barrier(group.rank() == 0 ? 1s : 50s);
  });
  CHECK(error == "[comm] rank 0, monitored_barrier: these ranks have not come within 1 s: 2, 4");
  const std::string of_root = failure(3, patient(), [](const ProcessGroup& group) {
    if (group.rank() == 0) wait_until([&] { return group.poisoned(); });
    group.monitored_barrier(group.rank() == 2 ? 50s : 200ms);
  });
  CHECK(of_root == "[comm] rank 1, monitored_barrier: this rank has not come within 0.2 s: 0");
}

TEST_CASE("a monitored barrier does not meet a message of the user's") {
  run_ranks(2, patient(), [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({1}, DType::u8),
                 given = Tensor::from(std::vector<std::uint8_t>{1}, {1});
    const Work work = group.rank() == 0 ? group.recv(data, 1) : Work();
    group.monitored_barrier(60s);
    if (group.rank() == 1) group.send(given, 0).wait();
    work.wait();
    if (group.rank() == 0) CHECK(data.item<std::uint8_t>() == 1);
  });
}

TEST_CASE("a group within a group has a deadline of its own") {
  const std::string error = failure(3, patient(), [](const ProcessGroup& group) {
    const ProcessGroup part = group.new_group({0, 1}, 1s);
    if (group.rank() == 0) part.barrier().wait();
    wait_until([&] { return group.poisoned(); });
    group.check();
  });
  CHECK(contains(error, "rank 0 (0 of 2 in its group): barrier #"));
  CHECK(contains(error, "has not moved for 1 s (PEAL_TIMEOUT)"));
  const std::string differ = failure(2, patient(), [](const ProcessGroup& group) {
    static_cast<void>(group.new_group({0, 1}, std::chrono::seconds(10 + group.rank())));
  });
  CHECK(contains(differ, "PEAL_TIMEOUT 10000 ms"));
  CHECK(contains(differ, "PEAL_TIMEOUT 11000 ms"));
  run_ranks(2, patient(), [](const ProcessGroup& group) {
    using std::chrono::milliseconds;
    for (const milliseconds none : {milliseconds(0), milliseconds(-1), milliseconds::max()}) {
      const std::string error = error_of([&] { static_cast<void>(group.new_group({0, 1}, none)); });
      CHECK(contains(error, concat("got ", none.count(), " ms")));
      CHECK(contains(error, "expected a deadline of 1 ms at least"));
    }
    group.barrier().wait();
  });
}

TEST_CASE("a world's deadline is a millisecond at least") {
  for (const int none : {0, -1}) {
    ProcessGroup::Options options;
    options.deadline = std::chrono::milliseconds(none);
    const std::string error = failure(2, options, [](const ProcessGroup&) {});
    CHECK(contains(error, concat("expected a deadline of 1 ms at least, got ", none, " ms")));
  }
}

TEST_CASE("ranks of the world and of a group are found from each other") {
  run_ranks(5, patient(), [](const ProcessGroup& group) {
    const ProcessGroup part = group.new_group({4, 1, 2});
    if (!part) return;
    for (const int rank : {0, 1, 2}) CHECK(part.group_rank(part.global_rank(rank)) == rank);
    CHECK(part.group_rank(4) == 0);
    CHECK(contains(error_of([&] { static_cast<void>(part.group_rank(3)); }),
                   "rank 3 of the world is not in the group"));
  });
}

TEST_CASE("what stalls is said once a node, and who waits for whom") {
  ProcessGroup::Options options = patient();
  options.stall_warning = 300ms;
  const std::string log = stderr_of([&] {
    run_ranks(3, options, [&](const ProcessGroup& group) {
      const auto waits = [&](int rank) {  // and says so, as it does before it warns
        const auto row = body_of(group).lane->control().read(rank);
        return row && contains(row->text, "the start");
      };
      if (group.rank() == 2) wait_until([&] { return waits(0) || waits(1); });
      group.barrier("the start").wait();
    });
  });
  CAPTURE(log);
  CHECK(contains(log, "warning: [comm] rank "));
  const std::string stalls = " (the start) has not moved for ";
  REQUIRE(contains(log, stalls));
  CHECK(std::stod(log.substr(log.find(stalls) + stalls.size())) >= 0.3);
  CHECK(contains(log,
                 "and is an error after 60 s (PEAL_TIMEOUT), unless a rank that works meanwhile "
                 "says so: group.busy(\"tests\")"));
  CHECK(contains(log, "what the ranks of this node wait for:\n  rank 0:"));
  CHECK(contains(log, "\n  rank 2: waits for nothing that it has said"));
}

TEST_CASE("who waits for a rank that works is not warned of a stall") {
  ProcessGroup::Options options = patient();
  options.stall_warning = 100ms;
  const std::string log = stderr_of([&] {
    std::atomic<bool> works{false}, over{false};
    run_ranks(2, options, [&](const ProcessGroup& group) {
      if (group.rank() == 1) {
        const auto busy = group.busy();
        works = true;
        std::this_thread::sleep_for(500ms);
        group.barrier("the end").wait();
        wait_until([&] { return over.load(); });  // the other may be slow to see that it has come
      } else {
        wait_until([&] { return works.load(); });
        group.barrier("the end").wait();
        over = true;
      }
    });
  });
  CAPTURE(log);
  CHECK_FALSE(contains(log, "the end"));  // a slow start may well be warned of
}
