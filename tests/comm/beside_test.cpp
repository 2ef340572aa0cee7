// SPDX-License-Identifier: Apache-2.0
// The progress thread: collectives over a network go on while their ranks do something else.
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::wait_until;

// One rank waits, the others compute, which takes until that one has got its result: so somebody
// else must pass on what they have.
TEST_CASE("what is in flight goes on while a rank does something else, but for its continuations") {
  for (const char* algorithm : {"ring", "recursive_doubling"}) {
    ProcessGroup::Options options;
    options.algorithms = std::string("all_reduce=") + algorithm;
    std::atomic<bool> over{false};
    std::atomic<int> asked{
        0};  // ranks that have said what shall follow, which could follow at once
    run_ranks(4, options, Wire{.latency = 1e-4}, [&](const ProcessGroup& group) {
      const Tensor data = Tensor::from(std::vector<float>(1000, 1), {1000});
      if (group.rank() == 0) wait_until([&] { return asked == 3; });
      const Work work = group.all_reduce(data);
      const auto me = std::this_thread::get_id();
      bool ran = false;
      if (group.rank() != 0) {
        work.then([&] {
          CHECK(std::this_thread::get_id() == me);
          ran = true;
        });
        ++asked;
        wait_until([&] { return over.load(); });
        CHECK_FALSE(ran);
      }
      work.wait();
      CHECK(ran == (group.rank() != 0));
      over = true;
      CHECK(data.to_vector<float>() == std::vector<float>(1000, 4));
    });
  }
}

TEST_CASE(
    "what a rank lets go of is dropped by its own thread, and a group may go with work in flight") {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> wrong{0};
    run_ranks(3, {.algorithms = "all_reduce=ring"}, Wire{.latency = 2e-4, .jitter = 1e-3},
              [&](const ProcessGroup& group) {
                const auto me = std::this_thread::get_id();
                {
                  const ProcessGroup other = group.new_group({0, 1, 2});
                  for (int i = 0; i < 10; ++i) {
                    const auto memory = std::make_shared<std::vector<float>>(64, 1.0F);
                    const auto storage =
                        Storage::wrap(memory->data(), 256, Device{}, [&wrong, me, memory] {
                          if (std::this_thread::get_id() != me) ++wrong;
                        });
                    static_cast<void>(other.all_reduce(View{storage, 0, 64, DType::f32}));
                  }
                }
                // Computes, and the operations of the group that has gone come to their end.
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                group.barrier().wait();
              });
    CHECK(wrong == 0);
  }
}
