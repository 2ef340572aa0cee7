// SPDX-License-Identifier: Apache-2.0
// Processes: the ranks of a job as processes of this machine, which this one starts without MPI
// (PyTorch: torch.multiprocessing.start_processes, with start_method="fork").
//
// They are made by fork(), for f is a closure that no other program has. A rank has a copy of this
// process's memory as it was, and what it writes there nobody else sees: results go into files. It
// runs f on a thread of its own, and ends with it: no static destructor runs.
//
// What must hold when they are started, for a child has no other threads than the one that forked:
//   - No other thread of this process is inside peal, or holds a lock that f will want: it would
//     stay locked for ever. A loader's workers must be gone. Threads that only wait do no harm, nor
//     do those of OpenMP, which f has anew.
//   - CUDA was not used yet: an Error, for a child cannot use what its parent began.
//   - Groups of this process are no groups of its children (process_group.h).
//
// Where one fails, the others get its message from their collectives and have `grace` to end by
// themselves, then SIGTERM, then SIGKILL. They end with this process too, whatever ends it, and
// with the thread that started them. Nothing remains in /dev/shm. Thread safety: a context is one
// thread's.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::launch {

// A rank has failed: the first that did so by itself.
class ProcessException : public Error {
 public:
  // `rank` is counted from 0 among those that were started, `pid` is the system's.
  ProcessException(const std::string& message, int rank, int pid)
      : Error(message), error_index(rank), error_pid(pid) {}
  const int error_index, error_pid;  // its rank, and its process
};
// f threw there: this is its message, with its rank.
class ProcessRaisedException : public ProcessException {
 public:
  using ProcessException::ProcessException;
};
// Its process ended before f did, by a signal, or by exit() with whatever code.
class ProcessExitedException : public ProcessException {
 public:
  // As above; `code` of exit(), or minus the number of a signal, whose `name` is empty for none.
  ProcessExitedException(const std::string& message, int rank, int pid, int code,
                         const std::string& name)
      : ProcessException(message, rank, pid), exit_code(code), signal_name(name) {}
  const int exit_code;            // of a signal its negative number
  const std::string signal_name;  // "SIGSEGV"; empty where it was none
};

// Ranks under way.
class ProcessContext {
 public:
  ~ProcessContext();  // those that still run are ended
  ProcessContext(ProcessContext&&) noexcept;
  ProcessContext& operator=(ProcessContext&&) = delete;

  std::vector<int> pids() const;  // by rank
  // Until all have returned: true; false where that takes longer. One of the errors above once a
  // rank has failed and all have ended.
  bool join(std::chrono::milliseconds timeout = std::chrono::hours(24 * 365));

 private:
  friend ProcessContext start_processes(int, const std::function<void(Job&)>&,
                                        std::chrono::milliseconds);
  struct Ranks;
  explicit ProcessContext(std::unique_ptr<Ranks> ranks);
  std::unique_ptr<Ranks> ranks_;
};

// f on as many processes. Error where they cannot be started; those that were are ended then.
ProcessContext start_processes(int ranks, const std::function<void(Job&)>& f,
                               std::chrono::milliseconds grace = std::chrono::seconds(2));

// Why a process with these files open (paths) must not fork ranks; empty where nothing is in the
// way.
std::string obstacle_to_fork(const std::vector<std::string>& open_files);

}  // namespace peal::launch
