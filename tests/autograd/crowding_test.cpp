// SPDX-License-Identifier: Apache-2.0
// When threads stop to spin for others: the decision by made-up clocks, and what it does to the
// processor time of a process that computes now and then.
#include <doctest/doctest.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/kernels/cpu/crowding.h>
#include <peal/autograd/kernels/cpu/parallel.h>

#include <omp.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

using peal::cpu::Crowding;
using peal::cpu::ShortSpinning;

namespace {

constexpr std::int64_t ms = 1'000'000;

// Processor time of all threads, in seconds, of twenty parallel regions with pauses between them.
double spent_on_regions() {
  const auto processor_time = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  std::atomic<std::int64_t> visited{0};
  const double begin = processor_time();
  for (int i = 0; i < 20; ++i) {
    peal::cpu::parallel_for(2, peal::cpu::worth_a_thread,
                            [&](std::int64_t from, std::int64_t to) { visited += to - from; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(visited.load() == 40);
  return processor_time() - begin;
}

}  // namespace

TEST_CASE("a thread that waits for a core is crowded, until it did not for a second") {
  Crowding crowding;
  CHECK(!crowding.look(0, 500 * ms));        // what was before the first look does not count
  CHECK(!crowding.look(5 * ms, 505 * ms));   // half a window says nothing yet
  CHECK(!crowding.look(10 * ms, 501 * ms));  // a tenth
  CHECK(crowding.look(20 * ms, 503 * ms));   // a fifth
  CHECK(crowding.look(30 * ms, 503 * ms));
  CHECK(crowding.look(1019 * ms, 503 * ms));
  CHECK(!crowding.look(1030 * ms, 503 * ms));
  CHECK(!crowding.look(9000 * ms, 510 * ms));
  CHECK(crowding.look(9010 * ms, 520 * ms));
}

TEST_CASE("while spinning is short, threads between two regions cost next to nothing") {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) {
    MESSAGE("spinning is set by the environment");
    return;
  }
  if (omp_get_num_procs() < 2) {
    MESSAGE("on one core threads hardly spin in any case");
    return;
  }
  peal::set_num_threads(2);
  spent_on_regions();  // the threads are there from now on
  const double long_spinning = spent_on_regions();
  double short_spinning = 0;
  {
    const ShortSpinning guard;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // its team comes up by itself
    spent_on_regions();
    short_spinning = spent_on_regions();
  }
  const double again = spent_on_regions();
  INFO("seconds: ", long_spinning, ", ", short_spinning, ", ", again);
  // 300000 turns of a loop against 100. Processor time does not grow by others' being busy.
  CHECK(short_spinning < long_spinning / 3);
  CHECK(short_spinning < again / 3);
}
