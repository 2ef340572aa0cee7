// SPDX-License-Identifier: Apache-2.0
// Failures of ranks that have nothing but a device's queue to wait for, and the watchdog that ends
// it. Each test ends by what it proves, or by its time limit.
#include <peal/comm/group/group_body.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "collective_values.h"
#include "failing_run.h"
#include "over_queues.h"
#include "queue_device.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::alone_on_rank_0;
using peal::testing::contains;
using peal::testing::failure;
using peal::testing::Logs;
using peal::testing::logs_of;
using peal::testing::ones;
using peal::testing::over_queues;
using peal::testing::wait_until;

TEST_CASE("a rank that fails is seen by one that waits for its own stream alone") {
  for (int round = 0; round < 5; ++round) {
    const Logs logs = logs_of(3);
    std::atomic<int> queued{0}, told{0};
    const std::string thrown = failure(
        3, {},
        [&](const ProcessGroup& group) {
          const Tensor data = ones(1000);
          group.all_reduce(data).synchronize();
          if (group.rank() == 1) {
            wait_until([&] { return queued == 2 || group.poisoned(); });
            throw std::runtime_error("disk of rank 1 is on fire");
          }
          const Work work = group.all_reduce(data);
          work.wait();
          ++queued;
          current_stream(context().device).synchronize();  // until the watchdog ends it
          try {
            work.wait();
          } catch (const Error& error) {
            if (contains(error.what(), "on fire")) ++told;
          }
          group.barrier().wait();
        },
        logs);
    CAPTURE(thrown);
    CHECK(contains(thrown, "on fire"));
    CHECK(told == 2);
    CHECK(logs[0]->aborted == 1);
    CHECK(logs[2]->aborted == 1);
  }
}

TEST_CASE("the deadline holds for what lies in a queue, and names the operation") {
  const auto alone = alone_on_rank_0([](const ProcessGroup& group) {
    group.all_reduce(ones(8), ReduceOp::sum, "bucket 3").wait();
    current_stream(context().device).synchronize();
    group.check();
  });
  const std::string late =
      failure(2, {.deadline = std::chrono::milliseconds(3000)}, alone, logs_of(2));
  CAPTURE(late);
  CHECK(contains(late, "rank 0: all_reduce #"));
  CHECK(contains(late, "bucket 3"));
  CHECK(contains(late, "PEAL_TIMEOUT"));
}

// A full queue holds up whoever calls the device, and with it the engine's lock.
TEST_CASE("a queue that takes no more is ended when a rank fails, and by the deadline") {
  for (const bool fails : {true, false}) {
    CAPTURE(fails);
    const Logs logs = logs_of(2);
    const std::string thrown = failure(
        2, {.deadline = std::chrono::milliseconds(fails ? 60000 : 3000)},
        [&](const ProcessGroup& group) {
          const Tensor data = ones(8);
          group.all_reduce(data).synchronize();
          if (group.rank() == 1) {
            wait_until([&] { return (fails && logs[0]->stands) || group.poisoned(); });
            PEAL_CHECK(!fails, "disk of rank 1 is on fire");
          } else {
            logs[0]->full = true;
            group.all_reduce(data).synchronize();
          }
          group.barrier().wait();
        },
        logs);
    CAPTURE(thrown);
    CHECK(contains(thrown, fails ? "on fire" : "has taken nothing"));
    CHECK(logs[0]->aborted == 1);
  }
}

TEST_CASE("a queue that takes no more is waited for while another rank says that it works") {
  const Logs logs = logs_of(2);
  const std::string thrown = failure(
      2, {.deadline = std::chrono::milliseconds(2000)},
      [&](const ProcessGroup& group) {
        const Tensor data = ones(8);
        group.all_reduce(data).synchronize();
        if (group.rank() == 1) {
          const auto busy = group.busy();
          wait_until([&] { return logs[0]->stands || group.poisoned(); });
          std::this_thread::sleep_for(std::chrono::milliseconds(3500));
          throw std::runtime_error("disk of rank 1 is on fire");
        }
        logs[0]->full = true;
        group.all_reduce(data).synchronize();
      },
      logs);
  CAPTURE(thrown);
  CHECK(contains(thrown, "on fire"));
}

// The board has one row for a rank, and its groups share it.
TEST_CASE("what a rank waits for in a queue is said again after another group's wait") {
  std::atomic<bool> said_again{false};
  over_queues(2, {.deadline = std::chrono::seconds(60)}, [&](const ProcessGroup& group) {
    const ProcessGroup pair = group.split(0);
    const Tensor data = ones(8), word = Tensor::zeros({4}, DType::f32, Device{});
    Control& control = body_of(group).lane->control();
    const auto says = [&](const ProcessGroup& what) {
      const auto row = control.read(0);
      return row && row->text[0] != 0 && row->group == body_of(what).lane->id();
    };
    if (group.rank() == 0) {
      const Work work = group.all_reduce(data);
      work.wait();
      wait_until([&] { return says(group); });
      pair.recv(word, 1).wait();
      const auto began = std::chrono::steady_clock::now();
      while (!says(group) && std::chrono::steady_clock::now() - began < std::chrono::seconds(20)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      CHECK(says(group));
      said_again = true;
      work.synchronize();
    } else {
      wait_until([&] { return says(pair); });
      pair.send(word, 0).wait();
      wait_until([&] { return said_again.load(); });
      group.all_reduce(data).synchronize();
    }
  });
}

// A device whose queue is full may not even say whether an event is reached; nobody stands in a
// call of the engine's then.
TEST_CASE("a device that answers no question is taken for one that stands, at the deadline") {
  const Logs logs = logs_of(2);
  const auto alone = alone_on_rank_0([](const ProcessGroup& group) {
    group.all_reduce(ones(8)).wait();
    peal::testing::answer(context().device, false);  // until abandon()
    current_stream(context().device).synchronize();
    group.check();
  });
  const std::string late = failure(2, {.deadline = std::chrono::milliseconds(3000)}, alone, logs);
  CAPTURE(late);
  CHECK(contains(late, "rank 0: all_reduce #"));
  CHECK(contains(late, "has not moved for 3 s"));
  CHECK(logs[0]->aborted == 1);
}

// The host sees the end of an operation when it next looks; until then it stands before those that
// it has put behind it.
TEST_CASE("what waits behind an operation that is over is watched as well") {
  std::atomic<bool> done{false};
  const std::string late = failure(
      2, {.deadline = std::chrono::milliseconds(3000)},
      [&](const ProcessGroup& group) {
        group.barrier().wait();
        const Tensor data = ones(8);
        group.all_reduce(data, ReduceOp::sum, "first").wait();
        current_stream(context().device).synchronize();
        if (group.rank() == 1) {
          wait_until([&] { return done || group.poisoned(); });
          return;
        }
        const auto finally = std::shared_ptr<void>(nullptr, [&](void*) { done = true; });
        group.all_reduce(data, ReduceOp::sum, "second").wait();
        current_stream(context().device).synchronize();
        group.check();
      },
      logs_of(2));
  CAPTURE(late);
  CHECK(contains(late, "second"));
  CHECK(contains(late, "PEAL_TIMEOUT"));
}

// What is over on the device is nobody's affair, though the host never looks again.
TEST_CASE("a rank that computes for longer than the deadline is not taken for one that waits") {
  const Logs logs = logs_of(2);
  over_queues(
      2, {.deadline = std::chrono::milliseconds(3000)},
      [&](const ProcessGroup& group) {
        const Tensor data = ones(8);
        group.all_reduce(data).wait();
        current_stream(context().device).synchronize();
        std::this_thread::sleep_for(std::chrono::milliseconds(4000));
        CHECK(comm::testing::element(data, 7) == 2);
        group.all_reduce(data).synchronize();
      },
      logs);
  CHECK(logs[0]->aborted == 0);
  CHECK(logs[1]->aborted == 0);
}

TEST_CASE("an asynchronous error of the library below ends the operation everywhere") {
  const Logs logs = logs_of(3);
  const std::string broken = failure(
      3, {},
      [&](const ProcessGroup& group) {
        const Tensor data = ones(8);
        group.all_reduce(data).synchronize();
        group.barrier().wait();
        if (group.rank() == 2) {
          wait_until([&] { return group.poisoned(); });
        } else {
          group.all_reduce(data).wait();
          if (group.rank() == 0) {
            const std::lock_guard lock(logs[0]->mutex);
            logs[0]->fails = "unhandled system error";
          }
          current_stream(context().device).synchronize();
        }
        group.barrier().wait();
      },
      logs);
  CAPTURE(broken);
  CHECK(contains(broken, "unhandled system error"));
}

// What an operation holds may be the last handle of a group, whose destructor speaks to the engine
// and to MPI, which serves one thread.
TEST_CASE("nothing dies on the watchdog's thread, nor under the engine's lock") {
  std::mutex mutex;
  std::set<std::thread::id> ranks, killers;
  std::atomic<int> freed{0};
  std::atomic<bool> queued{false};
  const std::string thrown = failure(
      2, {},
      [&](const ProcessGroup& group) {
        {
          const std::lock_guard lock(mutex);
          ranks.insert(std::this_thread::get_id());
        }
        auto part = group.split(0);
        const auto memory = std::make_shared<std::vector<float>>(16);
        const auto on_a_thread = [&, memory, weak = std::weak_ptr(body_of(group).engine)] {
          if (const auto engine = weak.lock()) engine->progress();  // takes the lock
          const std::lock_guard lock(mutex);
          killers.insert(std::this_thread::get_id());
          ++freed;
        };
        const auto work_on = [&](const ProcessGroup& on) {
          View data{.count = 16, .dtype = DType::f32};
          data.storage = Storage::wrap(memory->data(), 64, context().device, on_a_thread);
          return on.all_reduce(data);
        };
        work_on(part).synchronize();
        group.barrier().wait();
        if (group.rank() == 1) {
          wait_until([&] { return queued || group.poisoned(); });
          throw std::runtime_error("rank 1 is off");
        }
        const std::weak_ptr<GroupBody> last = body_of(part).weak_from_this();
        {
          const ProcessGroup& on = part;
          const Work work = work_on(on);
          work.then([kept = std::move(part)] { FAIL("it never comes to this"); });
          work.wait();
          queued = true;
        }  // the operation has the last handles of its memory and of its group
        current_stream(context().device).synchronize();  // until the watchdog ends it
        wait_until([&] {
          group.progress();
          return last.expired();
        });
        group.barrier().wait();
      },
      logs_of(2));
  CAPTURE(thrown);
  CHECK(contains(thrown, "rank 1 is off"));
  for (const std::thread::id killer : killers) CHECK(ranks.contains(killer));
  CHECK(freed >= 2);
}

TEST_CASE("groups come and go while the watchdog looks") {
  over_queues(3, {}, [](const ProcessGroup& group) {
    for (int round = 0; round < 20; ++round) {
      const Tensor data = ones(50);
      {
        const auto part = group.split(round % 2 == 0 ? 0 : group.rank() % 2);
        part.all_reduce(data).wait();
      }
      const int size = round % 2 == 0 ? 3 : group.rank() % 2 == 0 ? 2 : 1;
      CHECK(comm::testing::element(data, 49) == size);
    }
  });
}

TEST_CASE("a failure at any moment reaches all, and nobody hangs") {
  for (int round = 0; round < 12; ++round) {
    const std::string thrown = failure(
        3, {},
        [&](const ProcessGroup& group) {
          const auto part = group.split(0);
          std::vector<Work> works;
          std::vector<Tensor> data;
          for (int i = 0; i < 20; ++i) {
            if (group.rank() == 2 && i == round) throw std::runtime_error("no more of this");
            data.push_back(ones(1 + 100 * i));
            works.push_back((i % 2 == 0 ? group : part).all_reduce(data.back()));
            if (i % 4 == round % 4) works.back().wait();
            if (i % 5 == 3) works.erase(works.begin());
          }
          for (const Work& work : works) work.synchronize();
          group.barrier().wait();
        },
        logs_of(3));
    CAPTURE(round);
    CHECK(contains(thrown, "no more of this"));
  }
}

TEST_CASE(
    "a rank may ask what has failed while the watchdog looks, and memory is refused with the "
    "reason") {
  std::atomic<bool> queued{false};
  std::atomic<int> told{0};
  const std::string thrown = failure(
      2, {},
      [&](const ProcessGroup& group) {
        if (group.rank() == 1) {
          wait_until([&] { return queued || group.poisoned(); });
          std::this_thread::sleep_for(
              std::chrono::milliseconds(120));  // the watchdog looks meanwhile
          throw std::runtime_error("rank 1 has no data");
        }
        group.all_reduce(ones(8)).wait();
        queued = true;
        try {
          for (;;) group.check();
        } catch (const Error&) {
          ++told;
        }
        try {
          static_cast<void>(group.allocate({8}, DType::f32, context().device));
        } catch (const Error& error) {
          if (contains(error.what(), "rank 1 has no data")) ++told;
        }
        group.barrier().wait();
      },
      logs_of(2));
  CHECK(contains(thrown, "rank 1 has no data"));
  CHECK(told == 2);
}

TEST_CASE("a group that has failed keeps its transport, which works of it refer to") {
  peal::testing::register_queue_device();
  const auto place = std::make_shared<peal::testing::MeetingPlace>(2);
  std::atomic<int> refused{0};
  std::atomic<bool> queued{false};
  const Logs logs = logs_of(2);
  const std::string thrown = failure(
      2, {},
      [&](const ProcessGroup& group) {
        Work pending;
        if (group.rank() == 1) {
          wait_until([&] { return queued.load(); });
          group.poison("rank 1 is off");
        } else {
          pending = group.all_reduce(ones(8));  // which rank 1 never calls
          queued = true;
          CHECK_THROWS_WITH_AS(pending.synchronize(), doctest::Contains("rank 1 is off"), Error);
        }
        auto another = std::make_unique<peal::testing::QueueTransport>(
            place, group.rank(), context().device, logs[std::size_t(group.rank())]);
        try {
          group.attach(std::move(another));
        } catch (const Error& error) {
          if (contains(error.what(), "rank 1 is off")) ++refused;
        }
      },
      logs);
  CAPTURE(thrown);
  CHECK(refused == 2);
}
