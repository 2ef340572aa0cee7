// SPDX-License-Identifier: Apache-2.0
// Work by several threads: f(i) for each i below `count`, each once, on any of the threads; what
// one throws is thrown, of the smallest i. Thread safety: f is called by several threads at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace peal::data {

template <class F>
void in_parallel(std::int64_t count, int threads, const F& f) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) {
      try {
        f(i);
      } catch (...) {
        failures[static_cast<std::size_t>(i)] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> workers;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, count); ++i) {
    workers.emplace_back(work);
  }
  work();
  workers.clear();  // waits for them
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace peal::data
