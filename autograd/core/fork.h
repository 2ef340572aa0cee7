// SPDX-License-Identifier: Apache-2.0
// fork(): whether something was made by this process, or inherited from the one that did. A child
// has its parent's memory, but its connections, board and MPI are the parent's still. Asking costs
// a load, for forks are counted as they happen (pthread_atfork). Thread safety: any thread.
#pragma once

namespace peal {

// Of whatever it is a member of.
class ForkMark {
 public:
  bool inherited() const { return made_after_ != forks(); }

 private:
  static int forks();  // that lie between the program's first process and this one
  int made_after_ = forks();
};

}  // namespace peal
