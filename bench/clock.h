// SPDX-License-Identifier: Apache-2.0
// Two clocks at once: wall time, and the processor time of all threads of this process. On a busy
// machine wall time favours the program with the shorter bursts (a burst within one time slice is
// never interrupted), so programs that take turns are compared by both. Thread safety: values.
#pragma once

#include <chrono>
#include <ctime>

namespace peal::bench {

struct Seconds {
  double wall = 0, processor = 0;
};

class Clock {
 public:
  Seconds since_start() const {
    const Seconds end = now();
    return {end.wall - start_.wall, end.processor - start_.processor};
  }

 private:
  static Seconds now() {
    timespec spent{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
    return {wall.count(),
            static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec)};
  }

  Seconds start_ = now();
};

}  // namespace peal::bench
