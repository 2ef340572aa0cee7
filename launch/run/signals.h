// SPDX-License-Identifier: Apache-2.0
// Signals as something to read (signalfd): those that end a program, the two that are the user's,
// and that of a child's end. While one of these lives they interrupt nothing. What is ignored at
// its beginning (nohup's SIGHUP, a script's SIGINT for what it starts with &) stays so, and is
// nothing to read. Thread safety: the main thread of a process that has no other.
#pragma once

#include <peal/launch/run/child.h>

#include <csignal>
#include <optional>

namespace peal::launch {

class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return file_.fd(); }
  // The next one that has come; it doesn't wait.
  std::optional<int> next();
  // The mask of before, for children.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
  OpenFile file_;
};

}  // namespace peal::launch
