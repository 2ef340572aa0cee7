// SPDX-License-Identifier: Apache-2.0
// The engine with stream-ordered operations, and its guard thread: on queues that threads run, so
// that ThreadSanitizer sees all of it. Each test ends by what it proves, or by its time limit.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "failing_run.h"
#include "on_rank.h"
#include "queue_device.h"
#include "queue_transport.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::MeetingPlace;
using peal::testing::OnDevice;
using peal::testing::QueueLog;
using peal::testing::QueueTransport;
using peal::testing::wait_until;

namespace {

using Logs = std::vector<std::shared_ptr<QueueLog>>;

Logs logs_of(int world) {
  Logs logs;
  for (int rank = 0; rank < world; ++rank) {
    logs.push_back(std::make_shared<QueueLog>());
    logs.back()->busy = rank;  // each is late in its own way
  }
  return logs;
}

void register_once() {
  static std::once_flag registered;
  std::call_once(registered, peal::testing::register_queue_device);
}

// f on the ranks, each with a device whose collectives go over its queues.
void over_queues(int world, const ProcessGroup::Options& options,
                 const std::function<void(const ProcessGroup&)>& f, const Logs& logs) {
  register_once();
  const auto place = std::make_shared<MeetingPlace>(world);
  run_ranks(world, options, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    group.attach(std::make_unique<QueueTransport>(place, group.rank(), here.device,
                                                  logs[static_cast<std::size_t>(group.rank())]));
    f(group);
  });
}

void over_queues(int world, const ProcessGroup::Options& options,
                 const std::function<void(const ProcessGroup&)>& f) {
  over_queues(world, options, f, logs_of(world));
}

std::string failure(int world, const ProcessGroup::Options& options,
                    const std::function<void(const ProcessGroup&)>& f, const Logs& logs) {
  return error_of([&] { over_queues(world, options, f, logs); });
}

Tensor ones(std::int64_t count) {
  return comm::testing::filled(count, DType::f32, [](std::int64_t) { return 1; });
}

}  // namespace

TEST_CASE("every algorithm is exact in the queues of devices") {
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    if (!entry.supports(3)) continue;
    over_queues(3, {.algorithms = concat(name(entry.what), "=", entry.name)},
                [](const ProcessGroup& group) { comm::testing::check_algorithms(group); });
  }
}

TEST_CASE("staged copies keep the order of the caller's stream") {
  over_queues(2, {}, [](const ProcessGroup& outer) {
    // A group without a transport of the device.
    const auto mine = [&](std::int64_t i) {
      return comm::testing::value(outer.rank(), i, DType::f32);
    };
    for (const std::int64_t count : {1, 1000}) {
      const Tensor on_device = comm::testing::filled(count, DType::f32, mine);
      const Tensor on_cpu = Tensor::empty({count}, DType::f32, Device{});
      outer.all_reduce(on_cpu, on_device, ReduceOp::sum).wait();
      const int other = 1 - outer.rank();
      const Tensor got = Tensor::empty({count});
      const Work sent = outer.send(on_device, other);
      outer.recv(got, other).wait();
      sent.wait();
      for (std::int64_t i = 0; i < count; ++i) {
        CHECK(on_cpu.data<float>()[i] == comm::testing::expected(2, i, DType::f32, ReduceOp::sum));
        CHECK(comm::testing::element(got, i) == comm::testing::value(other, i, DType::f32));
      }
    }
  });
}

TEST_CASE("a message whose data the device still makes is not overtaken") {
  over_queues(2, {}, [](const ProcessGroup& group) {
    const Tensor first = Tensor::scalar(1.f), second = Tensor::scalar(2.f, Device{});
    if (group.rank() == 0) {
      const auto made = std::make_shared<std::atomic<bool>>(false);
      peal::testing::put(current_stream(first.device()),
                         [made] { wait_until([&] { return made->load(); }); });
      const Work a = group.send(first, 1), b = group.send(second, 1);
      for (int i = 0; i < 100; ++i) group.progress();
      *made = true;
      a.wait();
      b.wait();
    } else {
      const Tensor one = Tensor::zeros({}), two = Tensor::zeros({}, DType::f32, Device{});
      group.recv(one, 0).wait();
      group.recv(two, 0).wait();
      CHECK(comm::testing::element(one, 0) == 1);
      CHECK(two.item<float>() == 2);
    }
  });
}

TEST_CASE("many operations of several groups are in flight at once") {
  constexpr int world = 4;
  over_queues(world, {}, [](const ProcessGroup& group) {
    const auto half = group.split(group.rank() / 2);
    const auto odd = group.split(group.rank() % 2);
    std::vector<Tensor> data;
    std::vector<Work> works;
    for (int i = 0; i < 30; ++i) {
      data.push_back(ones(10 + i));
      const ProcessGroup& chosen = i % 3 == 0 ? group : i % 3 == 1 ? half : odd;
      works.push_back(chosen.all_reduce(data.back()));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 30; ++i) {
      CHECK(comm::testing::element(data[static_cast<std::size_t>(i)], 9 + i) ==
            (i % 3 == 0 ? world : 2));
    }
  });
}

// Communicators that share a device must be fed in one order on all ranks: each may hold what the
// other needs, until its peers come.
TEST_CASE("operations of all groups enter the queues in the order of their calls") {
  constexpr int world = 2;
  const Logs logs = logs_of(world);
  logs[0]->busy = 40;
  over_queues(
      world, {.algorithms = "all_reduce=ring"},
      [&](const ProcessGroup& group) {
        const auto first = group.split(0), second = group.split(0);
        std::vector<Tensor> data;
        std::vector<Work> works;
        for (int i = 0; i < 12; ++i) {
          data.push_back(ones(100));
          works.push_back((i % 4 == 3 ? second : first).all_reduce(data.back()));
          if (group.rank() == 1) works.back().wait();
        }
        for (const Work& work : works) work.synchronize();
      },
      logs);
  REQUIRE(logs[0]->posted.size() == 12);
  CHECK(logs[0]->posted == logs[1]->posted);
  for (std::size_t i = 4; i < 12; ++i) {
    CHECK(logs[0]->posted[i].first == logs[0]->posted[i % 4].first);
  }
}

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
          current_stream(context().device).synchronize();  // until the guard ends it
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
  std::atomic<bool> done{false};
  const std::string late = failure(
      2, {.deadline = std::chrono::milliseconds(3000)},
      [&](const ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
          wait_until([&] { return done || group.poisoned(); });
          return;
        }
        const auto finally = std::shared_ptr<void>(nullptr, [&](void*) { done = true; });
        group.all_reduce(ones(8), ReduceOp::sum, "bucket 3").wait();
        current_stream(context().device).synchronize();
        group.check();
      },
      logs_of(2));
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
TEST_CASE("nothing dies on the guard's thread, nor under the engine's lock") {
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
        current_stream(context().device).synchronize();  // until the guard ends it
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

TEST_CASE("groups come and go while the guard looks") {
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
    "a rank may ask what has failed while the guard looks, and memory is refused with the reason") {
  std::atomic<bool> queued{false};
  std::atomic<int> told{0};
  const std::string thrown = failure(
      2, {},
      [&](const ProcessGroup& group) {
        if (group.rank() == 1) {
          wait_until([&] { return queued || group.poisoned(); });
          std::this_thread::sleep_for(std::chrono::milliseconds(120));  // the guard looks meanwhile
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

namespace {

// f on the ranks, whose transport reaches the memory of their devices.
void directly(int world, const ProcessGroup::Options& options,
              const std::function<void(const ProcessGroup&)>& f) {
  register_once();
  run_ranks(world, options, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    group.attach_direct(here.device);
    CHECK(group.transport(here.device) == "direct threads");
    f(group);
  });
}

}  // namespace

TEST_CASE("every algorithm is exact over a transport that reaches the devices") {
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    if (!entry.supports(3)) continue;
    directly(3, {.algorithms = concat(name(entry.what), "=", entry.name)},
             [](const ProcessGroup& group) { comm::testing::check_algorithms(group); });
  }
}

TEST_CASE("what a device still makes is not moved before, nor read before it has come") {
  directly(3, {}, [](const ProcessGroup& group) {
    const Stream stream = current_stream(context().device);
    const auto part = group.split(0);
    for (int round = 0; round < 5; ++round) {
      std::vector<Tensor> data;
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) {
        data.push_back(ones(1000));
        float* const values = reinterpret_cast<float*>(data.back().raw());
        peal::testing::put(stream, [=, rank = group.rank()] {
          std::this_thread::yield();
          for (int k = 0; k < 1000; ++k) values[k] *= static_cast<float>(rank + 1);
        });
        works.push_back((i % 2 == 0 ? group : part).all_reduce(data.back()));
      }
      for (std::size_t i = 4; i-- > 0;) {  // in any order: they take no turns
        works[i].wait();
        float* const values = reinterpret_cast<float*>(data[i].raw());
        peal::testing::put(stream, [=] {
          for (int k = 0; k < 1000; ++k) values[k] += 1;
        });
        CHECK(comm::testing::element(data[i], 999) == 7);
      }
    }
  });
}

TEST_CASE("a failure reaches those who wait over a transport that reaches the devices") {
  register_once();
  for (int turn = 0; turn < 6; ++turn) {
    std::string thrown;
    try {
      directly(3, {.algorithms = "all_reduce=ring"}, [&](const ProcessGroup& group) {
        std::vector<Work> works;
        std::vector<Tensor> data;
        for (int i = 0; i < 8; ++i) {
          if (group.rank() == 1 && i == turn) throw std::runtime_error("rank 1 is off");
          data.push_back(ones(500));
          works.push_back(group.all_reduce(data.back()));
          if (i % 3 == 2) works.back().wait();
        }
        for (const Work& work : works) work.synchronize();
        group.barrier().wait();
      });
    } catch (const std::exception& error) {
      thrown = error.what();
    }
    CHECK(contains(thrown, "rank 1 is off"));
  }
}

TEST_CASE("a group that comes and goes while another's exception is under way is no failed one") {
  const Logs logs = logs_of(2);
  over_queues(
      2, {},
      [](const ProcessGroup& group) {
        struct Leaves {
          const ProcessGroup& group;
          ~Leaves() {
            const auto part = group.split(0);
            part.all_reduce(ones(8)).wait();
          }
        };
        try {
          const Leaves leaves{group};
          throw std::runtime_error("nothing to do with it");
        } catch (const std::runtime_error&) {
        }
        group.barrier().wait();
      },
      logs);
  CHECK(logs[0]->aborted == 0);
  CHECK(logs[1]->aborted == 0);
}

TEST_CASE("a group that has failed keeps its transport, which works of it refer to") {
  register_once();
  const auto place = std::make_shared<MeetingPlace>(2);
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
        auto another = std::make_unique<QueueTransport>(place, group.rank(), context().device,
                                                        logs[std::size_t(group.rank())]);
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
