// SPDX-License-Identifier: Apache-2.0
// Failure: how, when and in which rank a job is to fail (fault injection). A rank calls look()
// wherever it may happen; the one that is meant fails there once its time has come. Ranks that are
// killed or stopped from outside have none. Thread safety: the training thread.
#pragma once

#include <peal/bench/failures/records.h>

#include <chrono>
#include <string>

namespace peal::failures {

struct Failure {
  std::string way = "none";  // none, exception, exit, memory
  int rank = 0;
  double after = 0;   // seconds from begin()
  std::string group;  // memory: a control group with a limit, which the rank joins
};

class Fate {
 public:
  Fate(const Failure& failure, int rank, const Records& records)
      : failure_(failure),
        mine_(failure.way != "none" && failure.rank == rank),
        records_(records) {}

  // The first round is done.
  void begin();
  // Fails, or does nothing.
  void look() const;

 private:
  [[noreturn]] void fill_memory() const;

  const Failure& failure_;
  bool mine_, begun_ = false;
  std::chrono::steady_clock::time_point when_{};
  const Records& records_;
};

}  // namespace peal::failures
