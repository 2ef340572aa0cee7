// SPDX-License-Identifier: Apache-2.0
// The engine with stream-ordered operations: what enters the queues of devices, in which order, and
// what is staged beside them.
#include <peal/comm/algorithms/table.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "failing_run.h"
#include "over_queues.h"
#include "queue_device.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::Logs;
using peal::testing::logs_of;
using peal::testing::ones;
using peal::testing::over_queues;
using peal::testing::wait_until;

TEST_CASE("every algorithm is exact in the queues of devices") {
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    if (!entry.supports(3)) continue;
    over_queues(
        3, {.algorithms = concat(name(entry.what), "=", entry.name)},
        [&](const ProcessGroup& group) { comm::testing::check_algorithm(group, entry.what); });
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
