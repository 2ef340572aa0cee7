// SPDX-License-Identifier: Apache-2.0
// Termination: SIGTERM as a wish that the ranks agree on (preemption: Slurm and Kubernetes send it
// some time before SIGKILL). While one of these lives it does not end the process; another one a
// second later does, as it would have without. What comes twice at once is one wish: timeout sends
// it to a process and to its group. A program that handles or ignores SIGTERM itself keeps its way.
//
// The ranks ask each other at the end of each step, and hear the answer at the end of the next, so
// that nobody waits. Thread safety: a rank's thread; ranks may be threads.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

namespace peal::launch {

class Termination {
 public:
  // Collective in asked(). REQUIRES: the group outlives it.
  explicit Termination(const comm::ProcessGroup& group);
  // A wish that nobody has heard of ends the process now, unless an exception does.
  ~Termination();
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  // Collective: whether any rank had been asked to end when it called this the last time. Once that
  // is so it stays so.
  bool asked();

 private:
  const comm::ProcessGroup& group_;
  Tensor wish_;      // of any rank, once work_ is done
  comm::Work work_;  // of the last call
  bool agreed_ = false;
};

}  // namespace peal::launch
