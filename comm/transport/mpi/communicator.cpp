// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/communicator.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Of the process: communicators that a thread let go of which may not call MPI.
struct LeftOver {
  std::mutex mutex;
  std::vector<MPI_Comm> communicators;
};
LeftOver& left_over() {
  static auto& kept = *new LeftOver;
  return kept;
}

void keep_for_ever(const std::shared_ptr<void>& memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  std::lock_guard lock(mutex);
  kept.push_back(memory);
}

int rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

}  // namespace

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(concat("[mpi] ", what, ": ", std::string_view(text, static_cast<std::size_t>(length))));
}

void return_errors(MPI_Comm communicator) {
  MPI_Errhandler now = MPI_ERRHANDLER_NULL;
  check_mpi(MPI_Comm_get_errhandler(communicator, &now), "MPI_Comm_get_errhandler");
  if (now == MPI_ERRORS_ARE_FATAL) {
    check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  if (now != MPI_ERRHANDLER_NULL) MPI_Errhandler_free(&now);
}

MpiThreads::MpiThreads() { MPI_Query_thread(&level_); }

namespace {
std::atomic<bool> mpi_has_ended{false};
}  // namespace

void MpiThreads::end() { mpi_has_ended = true; }
bool MpiThreads::ended() { return mpi_has_ended.load(std::memory_order_relaxed); }

void MpiThreads::refuse() const {
  PEAL_CHECK(!ended(),
             "[mpi] MPI has come to its end, and with it every group; let go of groups and works "
             "before the Job is gone");
  PEAL_CHECK(!mark_.inherited(), "[mpi] a child by fork has no MPI: it is its parent's");
  fail(
      "[mpi] MPI was initialised for one thread, and this is another; call collectives from the "
      "thread that made the group, or MPI_Init_thread with MPI_THREAD_SERIALIZED");
}

std::mutex& MpiThreads::turns() {
  static std::mutex mutex;
  return mutex;
}

void finish(MPI_Request request, const std::shared_ptr<void>& memory, const MpiThreads& threads,
            const Patience& patience, std::string_view what) {
  constexpr int spins_before_yield = 1000;
  const auto start = Clock::now();
  try {
    for (int spins = 0;; spins = std::min(spins + 1, spins_before_yield)) {
      int done = 0;
      {
        const auto turn = threads.turn();
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      }
      if (done != 0) return;
      if (spins < spins_before_yield) continue;
      patience.hopeless();
      PEAL_CHECK(Clock::now() - start < patience.deadline, "[mpi] ", what, ": waited ",
                 std::chrono::duration<double>(patience.deadline).count(),
                 " s (PEAL_TIMEOUT) for the other ranks; one of them is not running, or does "
                 "something else");
      sched_yield();
    }
  } catch (...) {
    keep_for_ever(memory);
    throw;
  }
}

MpiCommunicator::MpiCommunicator(MPI_Comm communicator, const MpiThreads& threads)
    : communicator_(communicator), threads_(threads) {
  const auto turn = threads_.turn();
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return_errors(MPI_COMM_SELF);
}

MpiCommunicator::~MpiCommunicator() {
  if (communicator_ == MPI_COMM_NULL) return;
  std::vector<MPI_Comm> due;
  {
    LeftOver& kept = left_over();
    std::lock_guard lock(kept.mutex);
    kept.communicators.push_back(communicator_);
    if (threads_.allowed()) due.swap(kept.communicators);
  }
  const auto turn = threads_.turn();
  if (due.empty() || finalized()) return;
  for (MPI_Comm& each : due) MPI_Comm_free(&each);
}

MpiCommunicator::MpiCommunicator(MpiCommunicator&& other) noexcept
    : communicator_(std::exchange(other.communicator_, MPI_COMM_NULL)), threads_(other.threads_) {}

MpiCommunicator& MpiCommunicator::operator=(MpiCommunicator&& other) noexcept {
  std::swap(communicator_, other.communicator_);
  std::swap(threads_, other.threads_);
  return *this;
}

MpiCommunicator MpiCommunicator::duplicate(MPI_Comm of, const MpiThreads& threads,
                                           const Patience& patience) {
  threads.check();
  const auto copy = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  int rank = 0;
  {
    const auto turn = threads.turn();
    rank = rank_in(of);
    check_mpi(MPI_Comm_idup(of, copy.get(), &request), "MPI_Comm_idup");
  }
  finish(request, copy, threads, patience, concat("rank ", rank, ", making a group"));
  return {*copy, threads};
}

void MpiCommunicator::meet(const Patience& patience, std::string_view what) const {
  threads_.check();
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto turn = threads_.turn();
    check_mpi(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
  }
  finish(request, nullptr, threads_, patience, what);
}

// All that can fail on one rank alone comes before the ranks meet.
MpiCommunicator MpiCommunicator::part(const std::vector<int>& ranks, int tag,
                                      const Patience& patience) const {
  threads_.check();
  MPI_Group all = MPI_GROUP_NULL;
  struct Some {  // freed by whatever way out
    const MpiThreads& threads;
    MPI_Group group = MPI_GROUP_NULL;
    ~Some() {
      if (group == MPI_GROUP_NULL) return;
      const auto turn = threads.turn();
      MPI_Group_free(&group);
    }
  } some{threads_};
  int rank = 0;
  {
    const auto turn = threads_.turn();
    rank = rank_in(communicator_);
    check_mpi(MPI_Comm_group(communicator_, &all), "MPI_Comm_group");
    const int code = MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some.group);
    MPI_Group_free(&all);
    check_mpi(code, "MPI_Group_incl");
  }
  meet(patience, concat("rank ", rank, ", making a sub-group"));
  MPI_Comm made = MPI_COMM_NULL;
  {
    const auto turn = threads_.turn();
    check_mpi(MPI_Comm_create_group(communicator_, some.group, tag, &made),
              "MPI_Comm_create_group");
  }
  return {made, threads_};
}

}  // namespace peal::comm
