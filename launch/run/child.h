// SPDX-License-Identifier: Apache-2.0
// Process creation: a program started as a child of this process (posix_spawn, with what ranks need
// beside). The child leads a process group of its own, so that a signal reaches what it starts, and
// ends with this process, whatever ends that (PR_SET_PDEATHSIG). Thread safety: the main thread of
// a process that has no other.
#pragma once

#include <peal/autograd/core/error.h>

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace peal::launch {

// A file descriptor that is closed with it; none where it is below 0.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() { close(); }
  OpenFile(OpenFile&& other) noexcept : fd_(other.release()) {}
  OpenFile& operator=(OpenFile&& other) noexcept;
  int fd() const { return fd_; }
  void close();

 private:
  int release();
  int fd_ = -1;
};

// Both close at exec; Error where the process may open no more files.
struct Pipe {
  Pipe();
  OpenFile read, write;
};

struct Command {
  std::vector<std::string> words;        // the program, which is looked for on PATH, and arguments
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<int> cpus = {};            // which it may run on; empty: all that this process may
  int in = -1, out = -1, err = -1;       // its standard streams; below 0: this process's
};

// The program could not be started. `code` is what a shell ends with then: 127 where there is none,
// 126 where it may not be executed.
class CannotStart : public Error {
 public:
  CannotStart(const std::string& message, int code) : Error(message), code(code) {}
  const int code;
};

// Of a child by fork() that is to be there after this process: it leads a process group of its own,
// so that who ends this one's does not end both, and hears no signal.
void stand_by();

// Starts it with `signals` as its blocked ones. Its process id; CannotStart.
pid_t start(const Command& command, const sigset_t& signals);

}  // namespace peal::launch
