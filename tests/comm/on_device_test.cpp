// SPDX-License-Identifier: Apache-2.0
// Collectives on devices whose memory the transport of the CPU reaches itself.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/start/device_aware.h>
#include <peal/comm/start/threads.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "failing_run.h"
#include "on_rank.h"
#include "over_queues.h"
#include "queue_device.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::ones;

namespace {

// f on the ranks, whose transport reaches the memory of their devices.
void directly(int world, const ProcessGroup::Options& options,
              const std::function<void(const ProcessGroup&)>& f) {
  peal::testing::register_queue_device();
  run_ranks(world, options, [&](const ProcessGroup& group) {
    const peal::testing::OnDevice here(group.rank());
    use_device_aware(group, here.device);
    CHECK(group.transport(here.device) == "device-aware threads");
    f(group);
  });
}

}  // namespace

TEST_CASE("every algorithm is exact over a transport that reaches the devices") {
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    if (!entry.supports(3)) continue;
    directly(3, {.algorithms = concat(name(entry.what), "=", entry.name)},
             [&](const ProcessGroup& group) { comm::testing::check_algorithm(group, entry.what); });
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
  peal::testing::register_queue_device();
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
