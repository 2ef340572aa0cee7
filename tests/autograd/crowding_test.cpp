// SPDX-License-Identifier: Apache-2.0
// When threads stop to spin for others: the decision by made-up clocks, and the team that makes
// libgomp spin shortly, by counting threads.
#include <doctest/doctest.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/kernels/cpu/crowding.h>
#include <peal/autograd/kernels/cpu/parallel.h>

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <thread>

using peal::cpu::Crowding;
using peal::cpu::ShortSpinning;

namespace {

constexpr std::int64_t ms = 1'000'000;

// Of this process, by their numbers.
std::set<std::string> threads() {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    all.insert(entry.path().filename());
  }
  return all;
}

bool sleeps(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_ends = line.rfind(')');  // its state stands behind it
  return name_ends != std::string::npos && line.substr(name_ends + 2, 1) == "S";
}

bool comes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void run_region() {
  std::atomic<std::int64_t> visited{0};
  peal::cpu::parallel_for(2, peal::cpu::worth_a_thread,
                          [&](std::int64_t from, std::int64_t to) { visited += to - from; });
  CHECK(visited.load() == 2);
}

}  // namespace

TEST_CASE(
    "a thread that waits for a core again and again is crowded, until it did not for a second") {
  Crowding crowding;
  CHECK(!crowding.look(0, 500 * ms));        // what was before the first look does not count
  CHECK(!crowding.look(5 * ms, 505 * ms));   // half a window says nothing yet
  CHECK(!crowding.look(10 * ms, 501 * ms));  // a tenth
  CHECK(!crowding.look(20 * ms, 503 * ms));  // a fifth
  CHECK(!crowding.look(30 * ms, 505 * ms));
  CHECK(!crowding.look(40 * ms, 507 * ms));
  CHECK(crowding.look(50 * ms, 509 * ms));  // the fourth in a row
  CHECK(crowding.look(60 * ms, 509 * ms));
  CHECK(crowding.look(1049 * ms, 509 * ms));
  CHECK(!crowding.look(1060 * ms, 509 * ms));
}

TEST_CASE("a program that spins for some windows before it sleeps leaves nobody crowded") {
  Crowding crowding;
  std::int64_t waited = 0;
  CHECK(!crowding.look(0, waited));
  for (std::int64_t window = 1; window < 100; ++window) {
    if (window % 5 < 3) waited += 5 * ms;
    CHECK(!crowding.look(10 * window * ms, waited));
  }
}

TEST_CASE("for short spinning there are more OpenMP threads than cores, asleep, while it lasts") {
  peal::set_num_threads(2);
  run_region();  // its threads are there from now on
  const auto before = threads();
  for (int round = 0; round < 2; ++round) {
    {
      const ShortSpinning guard;
      std::set<std::string> team;
      // That is what libgomp goes by. The team comes up by itself.
      CHECK(comes_true([&] {
        team.clear();
        std::ranges::set_difference(threads(), before, std::inserter(team, team.end()));
        return static_cast<int>(team.size()) + omp_get_max_threads() > omp_get_num_procs();
      }));
      CHECK(comes_true([&] { return std::ranges::all_of(team, sleeps); }));
      run_region();
    }
    CHECK(comes_true([&] { return threads() == before; }));
  }
}
