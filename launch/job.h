// SPDX-License-Identifier: Apache-2.0
// Job: this process's part in a training run, as one object. It finds out which rank it is, starts
// MPI where a launcher started ranks, or meets them at MASTER_ADDR (torchrun.h), gives ops their
// share of the cores, tags the log, and holds the group over all ranks. A program started alone is
// a world of one and touches no MPI.
//
//   int main(int argc, char** argv) {
//     return peal::launch::run_main([&](peal::launch::Job& job) {
//       Tensor x = ones({4});
//       job.group().all_reduce(x).wait();
//     });
//   }
//
// run_main turns what escapes into one log line, tells the other ranks, and ends the process with
// 1: no rank is left waiting for one that is gone. A Job is made within run_main, as above, or
// errors end in std::terminate, whose message has no rank. Thread safety: the main thread makes and
// ends it.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/place.h>
#include <peal/comm/group/process_group.h>
#include <peal/launch/rank.h>

#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace peal::launch {

class FlightSignal;
class RanksByStore;

class Job {
 public:
  // Waits for all ranks. One that comes later than PEAL_TIMEOUT (600 s) after another, since it
  // worked before or its launcher is slow, is an Error; where MPI starts, the end of the process
  // with 1, as MPI cannot be left. So make the Job first, and work within it (rank0_first(),
  // busy()). Error also where the environment and MPI disagree (check_world), or the build has no
  // MPI but the environment says that there are several ranks.
  Job();
  // As the rank that it is in `group`, of ranks that a process has started as its threads or its
  // children (spawn.h). Ops get their share of the cores.
  explicit Job(comm::ProcessGroup group);
  // Collective after success: until all have come, or the deadline, which is logged. After a
  // failure on any rank it waits for nobody. Nothing in a child by fork().
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // All ranks of the job; after shrink() those that are left.
  const comm::ProcessGroup& group() const { return group_; }
  // Recovery from the death of ranks, without a start from the beginning (NCCL: ncclCommShrink;
  // MPI's ULFM: MPIX_Comm_shrink): group() is then a new group of the ranks that are left, in their
  // old order, and rank() and world() are its. Every rank that lives calls it, when a collective
  // has thrown; a rank whose process has ended is gone. Where none is, the new group is as large as
  // the old one. It does not interrupt the others: a rank that failed by itself, while they wait
  // for it in a collective, says so first, by group().poison().
  //
  //   try {
  //     step(*model);
  //   } catch (const Error&) {
  //     const int before = job.world();
  //     model.reset();                          // the old wrapper goes first
  //     job.shrink();                           // again, if that throws since one more has died
  //     if (job.world() == before) throw;       // nobody has: it would come again
  //     model.emplace(net, job.group());        // gives all rank 0's parameters and buffers
  //     load the last checkpoint, or give all rank 0's optimizer.state_dict()
  //     make loaders again: job.place() is another
  //   }
  //
  // Ranks may be one step apart: with the last collective of a step one may be through, and another
  // not. So all that steps change is to come from one rank: the optimizer's state, else replicas
  // differ from then on, and schedules, GradScaler and the number of the step
  // (examples/13_shrink.cpp).
  //
  // The old group, and what was made from it, stays failed: make DDP and sub-groups again, and call
  // device() for collectives on devices, which go through the CPU until then. Cores and device of
  // this process stay as they are, and so where()'s local_rank. PEAL_TRACE's folder has what came
  // before the first shrink(), and in it shrink-1 what came after that, shrink-2 after the second.
  //
  // Error, with the ranks, where one that lives does not come within PEAL_TIMEOUT, which does not
  // run while it says that it works (ProcessGroup::busy()). Error for ranks that MPI started, whose
  // launcher ends them all, for threads and children of one process, and for ranks on several
  // nodes: start such a job again, from a checkpoint (peal-run --max-restarts). The launcher must
  // leave who is left alone: peal-run --keep-survivors.
  const comm::ProcessGroup& shrink();
  // Which rank this is, and of how many, in group(); where() says on which node, too.
  const Rank& where() const { return where_; }
  int rank() const { return where_.rank; }
  int world() const { return where_.world; }
  // In a child by fork(), which is no rank.
  bool inherited() const { return mark_.inherited(); }
  // Whether it is rank 0.
  bool is_main() const { return where_.rank == 0; }
  // For a loader's shard.
  Place place() const { return {rank(), world()}; }
  // The device this rank trains on (choose_device() in devices.h): move the model and each batch
  // there. Rank 0 logs the mapping, and warns where ranks share a device; where each has its own,
  // collectives go over NCCL; else over CUDA IPC; where that cannot be, over MPI where it is
  // CUDA-aware, or through the CPU. Collective.
  Device device(const std::string& text);

 private:
  void report(LogLevel level, const std::string& mine) const;
  void report_binding(const std::string& near = "") const;
  void bind_near(Device device) const;
  void attach(Device device, bool own);

  Rank where_;
  int unwinding_ = std::uncaught_exceptions();  // already when it was made
  ForkMark mark_;
  bool started_mpi_ = false;
  comm::ProcessGroup group_;
  std::unique_ptr<RanksByStore> by_store_;       // null: over MPI, or alone
  std::unique_ptr<FlightSignal> flight_signal_;  // null: a rank that is alone
};

// Makes a Job and runs f. The exit status: 0, 1 after an error that was logged, or 128 and the
// signal of Terminated (terminated.h). A child by fork() within f that leaves it ends alike, and
// says nothing to the other ranks.
int run_main(const std::function<void(Job&)>& f);

// Rank 0 runs f alone (to download, to unpack, to build a vocabulary), then the others, who find
// its work done. If it throws on rank 0, every rank throws. A world of one runs it once. It may
// take longer than PEAL_TIMEOUT (ProcessGroup::busy()).
void rank0_first(const comm::ProcessGroup& group, const std::function<void()>& f);

// The same of an f that gives something, which is each rank's own. Error, on the other ranks, where
// rank 0's f threw.
template <std::invocable F>
requires(!std::is_void_v<std::invoke_result_t<F&>>) auto rank0_first(
    const comm::ProcessGroup& group, F&& f) {
  std::optional<std::invoke_result_t<F&>> found;
  rank0_first(group, std::function<void()>([&] { found.emplace(f()); }));
  return std::move(*found);
}

}  // namespace peal::launch
