// SPDX-License-Identifier: Apache-2.0
// Flight signal: SIGUSR1 shows what a rank's collectives do, also where it hangs (PyTorch: the
// flight recorder's dump pipe): into the folder of PEAL_FLIGHT, else on stderr. mpirun passes the
// signal on to its ranks. Taken by nobody else before, it is taken by a process's first job, for
// all of its ranks, to the process's end. Thread safety: any thread.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>

namespace peal::launch {

// Of one rank, while it lives.
class FlightSignal {
 public:
  explicit FlightSignal(const comm::ProcessGroup& group);
  ~FlightSignal();
  FlightSignal(const FlightSignal&) = delete;
  FlightSignal& operator=(const FlightSignal&) = delete;

 private:
  std::uint64_t number_;
  ForkMark mark_;
};

}  // namespace peal::launch
