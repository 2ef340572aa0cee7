// SPDX-License-Identifier: Apache-2.0
// Crowding: do other programs want the cores that our OpenMP threads spin on?
//
// libgomp's threads spin for milliseconds at the end of each parallel region before they sleep.
// Where the cores are theirs alone that is fast. Where they are not, a thread that spins uses up
// the time that the thread it waits for would need: four busy programs on two cores made a training
// of 0.1 s take more than 9 s. So whoever calls ops asks the scheduler, every few milliseconds, how
// long it had to wait for a core. While that is a good part of the time, threads spin next to
// nothing (0.3 s there); on a machine that is quiet nothing changes. The number of threads never
// changes by itself: sums of floats depend on it.
//
// OMP_WAIT_POLICY and GOMP_SPINCOUNT are the user's word, and nothing is done where one is set.
// Thread safety: any thread.
#pragma once

#include <cstdint>

namespace peal::cpu {

// The decision alone, by two clocks of a thread in nanoseconds: what the time is, and how long it
// was ready to run and had no core. Crowded after so many windows in a row in which it waited for
// an eighth of the time, for another program's threads spin for some milliseconds too when it goes
// to sleep; until no such window was seen for a second.
class Crowding {
 public:
  static constexpr std::int64_t window = 10'000'000, calm = 1'000'000'000;
  static constexpr int patience = 4;

  bool look(std::int64_t now, std::int64_t waited);

 private:
  std::int64_t begin_ = -1, waited_ = 0, last_ = 0;
  int in_a_row_ = 0;
  bool crowded_ = false;
};

// What ops on the CPU call first: looks at most once in a window, else it costs a nanosecond.
void watch_for_crowding();

// While one of these lives, threads at the end of a parallel region hardly spin. libgomp has no
// call for that; but it spins 100 times instead of 300000 while a process has more OpenMP threads
// than cores, as its manual says of GOMP_SPINCOUNT. So a thread that does nothing keeps a team of
// as many as are missing, all asleep.
class ShortSpinning {
 public:
  ShortSpinning();
  ~ShortSpinning();
  ShortSpinning(const ShortSpinning&) = delete;
  ShortSpinning& operator=(const ShortSpinning&) = delete;

 private:
  struct Team;
  Team* team_;
};

}  // namespace peal::cpu
