// SPDX-License-Identifier: Apache-2.0
// Below MPI: what lies between a program and its MPI, by MPI's profiling interface. It makes calls
// fail, says other things of MPI than are so, and notices when two threads are in it at once. A
// program that links below_mpi.cpp gets MPI_THREAD_SERIALIZED, whatever it asks for.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace peal::testing {

struct BelowMpi {
  std::atomic<int> level{1};        // what MPI_Query_thread says: MPI_THREAD_FUNNELED
  std::atomic<int> highest_tag{0};  // what MPI_TAG_UB says; 0: what is so
  // The n-th call of it from now on (1: the next one) fails, with an error and without effect.
  std::atomic<int> failing_isend{0}, failing_comm_group{0}, failing_iallgather{0};
  std::atomic<int> calls{0}, testsomes{0};  // so far
  // Calls in which another thread was at the time, and those of another thread than `owner`.
  std::atomic<int> overlaps{0}, foreign{0};
  std::thread::id owner = std::this_thread::get_id();
};
BelowMpi& below_mpi();

}  // namespace peal::testing
