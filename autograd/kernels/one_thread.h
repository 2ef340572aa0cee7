// SPDX-License-Identifier: Apache-2.0
// Eigen on the calling thread alone: its own threads wait for each other by spinning, which takes
// as long as the system leaves another program on a core of theirs. Thread safety: as of OpenMP's
// settings, which are the calling thread's own.
#pragma once

#include <omp.h>

namespace peal {

// While it lives.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = omp_get_max_threads();
};

}  // namespace peal
