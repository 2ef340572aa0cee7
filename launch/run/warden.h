// SPDX-License-Identifier: Apache-2.0
// Warden: a process beside this one that ends ranks' process groups where this one was ended by
// what it cannot hear (SIGKILL). Ranks end by themselves then (child.h), and what they have started
// would stay. It reads a pipe that this process alone writes, whose end says so. What left its
// rank's group (setsid) it does not know. Thread safety: the main thread of a process that has no
// other.
#pragma once

#include <peal/launch/run/child.h>

#include <sys/types.h>

namespace peal::launch {

class Warden {
 public:
  // Error where there can be no further process.
  Warden();
  ~Warden();  // it goes, and ends nothing
  Warden(const Warden&) = delete;
  Warden& operator=(const Warden&) = delete;
  // `group`: a process of start(), which leads it.
  void guard(pid_t group);
  // That process has been reaped. Where none is left in its group, the number may become another's.
  void forget_if_empty(pid_t group);

 private:
  void tell(pid_t group);

  OpenFile groups_;
  pid_t process_;
};

}  // namespace peal::launch
