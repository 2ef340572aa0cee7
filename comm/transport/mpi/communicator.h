// SPDX-License-Identifier: Apache-2.0
// An MPI communicator of peal's own, and how peal calls MPI at all: errors come back as Errors, no
// two threads call it at once where it forbids that, and nothing waits in it without an end.
//
// MPI's own waits know of no deadline, and not that a rank is gone. So whatever has a form that
// does not block is polled (finish()). Where there is none, all ranks meet first (meet()): then
// nobody waits for one that does not come. What is left is a rank that dies or fails within such a
// call, MPI_Comm_create_group: no version of MPI has one that can be polled, and the launcher must
// end the job (mpirun does; srun does with --kill-on-bad-exit). Thread safety: MpiThreads from any
// thread; a MpiCommunicator belongs to its transport.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/store/store.h>

#include <mpi.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace peal::comm {

// Error in MPI's words where the code says so.
void check_mpi(int code, std::string_view what);

// Errors there come back as codes, where their handler is the default one, which ends the process.
// A call about several requests belongs to none of their communicators: what it finds goes to the
// handler of MPI_COMM_SELF (MPI 4.0, section 9.3; before, of MPI_COMM_WORLD), which is so for every
// group. Open MPI looks at the requests' own.
void return_errors(MPI_Comm communicator);

// Which threads may call MPI: what MPI_Init_thread gave. None may in a child by fork, nor once MPI
// has come to its end.
class MpiThreads {
 public:
  MpiThreads();  // the calling thread is the one that may, where only one may
  bool allowed() const {
    return !ended() && !mark_.inherited() &&
           (level_ >= MPI_THREAD_SERIALIZED || std::this_thread::get_id() == owner_);
  }
  // Several at once may, the program's own too.
  bool several() const { return level_ == MPI_THREAD_MULTIPLE; }
  // Error where the calling thread may not.
  void check() const {
    if (!allowed()) refuse();
  }
  // To be held while one calls: under MPI_THREAD_SERIALIZED one thread of the process at a time
  // does. Else it is nothing.
  [[nodiscard]] std::unique_lock<std::mutex> turn() const {
    if (level_ != MPI_THREAD_SERIALIZED) return {};
    return std::unique_lock(turns());
  }

  // Of this process, for all of them: MPI_Finalize comes next.
  static void end();

 private:
  [[noreturn]] void refuse() const;
  static bool ended();
  static std::mutex& turns();
  int level_ = MPI_THREAD_SINGLE;
  std::thread::id owner_ = std::this_thread::get_id();
  ForkMark mark_;
};

// Until the request is done. Error where that has become hopeless, naming `what` was waited for:
// the request, and the memory that it may write, are then left to MPI for ever.
void finish(MPI_Request request, const std::shared_ptr<void>& memory, const MpiThreads& threads,
            const Patience& patience, std::string_view what);

class MpiCommunicator {
 public:
  MpiCommunicator() = default;
  // Takes it over.
  MpiCommunicator(MPI_Comm communicator, const MpiThreads& threads);
  // Freed at the end, by a thread that may, unless it was abandoned. MPI_Comm_free is collective by
  // the standard, which expects it to be local (MPI 4.0, section 7.4.3: "it is anticipated that
  // this operation will normally be implemented to be local"); in Open MPI it is, which a test
  // holds. A destructor does not meet the others first: one of them may be gone.
  ~MpiCommunicator();
  MpiCommunicator(MpiCommunicator&& other) noexcept;
  MpiCommunicator& operator=(MpiCommunicator&& other) noexcept;
  // Another one of the same ranks. Collective.
  static MpiCommunicator duplicate(MPI_Comm of, const MpiThreads& threads,
                                   const Patience& patience);

  MPI_Comm get() const { return communicator_; }
  void abandon() { communicator_ = MPI_COMM_NULL; }
  // Until all of its ranks have come here. Collective.
  void meet(const Patience& patience, std::string_view what) const;
  // One over some of its ranks, in this order, once all have met: those that are not listed call
  // meet(), those that are list the same ranks. Parts that are made at once differ in their tags.
  MpiCommunicator part(const std::vector<int>& ranks, int tag, const Patience& patience) const;

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
  MpiThreads threads_;
};

}  // namespace peal::comm
