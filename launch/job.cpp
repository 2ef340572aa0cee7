// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/autograd/core/told_here.h>
#include <peal/autograd/intra_op.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/launch/affinity.h>
#include <peal/launch/bootstrap.h>
#include <peal/launch/devices.h>
#include <peal/launch/flight_signal.h>
#include <peal/launch/job.h>
#include <peal/launch/terminated.h>
#include <peal/launch/told_once.h>
#include <peal/launch/torchrun.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

namespace peal::launch {

namespace {

const char* environment(const char* name) { return std::getenv(name); }

// Lines of the log begin with it.
void tag_log(const Rank& where) { context().log_tag = concat("rank ", where.rank); }

}  // namespace

Job::Job() : where_(discover(environment)) {
  const auto master = mpi_was_started() ? std::nullopt : master_address(where_, environment);
  const bool ranks_expected =
      where_.launcher != "alone" || mpi_was_started() || std::getenv("PMIX_RANK") != nullptr;
  ranks_are_joined();
  if (where_.world > 1) tag_log(where_);
  if (master && where_.world > 1) {
    const char* const secret = std::getenv("PEAL_STORE_SECRET");
    by_store_ = std::make_unique<RanksByStore>(where_, *master, secret == nullptr ? "" : secret);
    group_ = by_store_->group();
    if (!where_.node_said) place_on_node(where_, group_.nodes().node);
  } else if (ranks_expected && !master) {
    started_mpi_ = start_mpi();
    const auto [rank, world] = mpi_world();
    check_world(where_, rank, world);
    where_.rank = rank;
    where_.world = world;
    if (world > 1) tag_log(where_);
    group_ = mpi_world_group();
    if (!where_.node_said) place_on_node(where_, group_.nodes().node);
  } else {
    group_ = comm::ProcessGroup::alone();
  }
  // OMP_NUM_THREADS is the user's word; without it a rank takes its share.
  const Cores here = cores();
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    set_num_threads(intra_op_threads(here.allowed, here.machine, where_.local_world));
  }
  report_binding();
  if (world() > 1) flight_signal_ = std::make_unique<FlightSignal>(group_);
}

Job::Job(comm::ProcessGroup group)
    : where_{.rank = group.rank(),
             .world = group.world(),
             .local_rank = group.rank(),
             .local_world = group.world(),
             .launcher = group.transport() == "threads" ? "threads" : "processes",
             .node_said = true},
      group_(std::move(group)) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const Cores here = cores();
    set_num_threads(intra_op_threads(here.allowed, here.machine, where_.local_world));
  }
  if (world() > 1) flight_signal_ = std::make_unique<FlightSignal>(group_);
}

// What several have to say alike is told once, and of what differs the first lines.
void Job::report(LogLevel level, const std::string& mine) const {
  constexpr std::size_t most_lines = 8;
  const auto reports = told_once(group_.all_gather_object(mine));
  if (!is_main()) return;
  for (std::size_t i = 0; i < std::min(reports.size(), most_lines); ++i) {
    log_line(level, reports[i]);
  }
}

void Job::report_binding(const std::string& near) const {
  const Cores here = cores();
  if (near.empty()) report(LogLevel::warning, binding_warning(here, where_));
  if (world() > 1) report(LogLevel::info, binding_report(here, where_, num_threads()) + near);
}

// A rank that nobody placed runs on cores beside its GPU from now on; memory that it has is where
// it was, page-locked memory comes with the first batches. Collective over ranks with a GPU each.
void Job::bind_near(Device device) const {
  const bool threads = where_.launcher == "threads";  // their process is the others', too
  if (threads) return;
  const std::string pci = pci_bus_id(device), list = local_cpu_list(pci);
  const std::vector<int> cpus = allowed_cpus();
  const auto beside = [&](int rank, const std::string& cpus_there) {
    return concat("node ", group_.nodes().node[static_cast<std::size_t>(rank)], ": ", cpus_there);
  };
  const auto all =
      group_.all_gather_object(is_placed() || list.empty() ? "" : beside(rank(), list));
  std::string near;
  const std::string& mine = all[static_cast<std::size_t>(rank())];
  if (!mine.empty()) {
    const auto place = std::count(all.begin(), all.begin() + rank(), mine);
    const auto ranks = std::count(all.begin(), all.end(), mine);
    const auto share =
        share_near(cpus_by_core(cpus), list, static_cast<int>(place), static_cast<int>(ranks));
    if (bind_process(share)) near = concat(", near ", device, " (", pci, ")");
  }
  const auto who = group_.all_gather_object(near);
  if (std::ranges::all_of(who, [](const std::string& each) { return each.empty(); })) return;
  if (!near.empty() && std::getenv("OMP_NUM_THREADS") == nullptr) {
    const Cores here = cores();
    set_num_threads(std::min(num_threads(), here.allowed));
  }
  report_binding(near.empty() ? " as before" : near);
}

// How collectives on the devices go: as PEAL_CUDA_TRANSPORT says, else over NCCL where each rank
// has a device of its own, else through memory that the ranks share, else through MPI.
void Job::attach(Device device, bool own) {
  const auto agreed = [&](const char* name, const char* text) {
    const std::string mine = text == nullptr ? "" : text;
    comm::agree(group_, concat("[launch] ", name), mine, "start all ranks with one");
    return mine;
  };
  const std::string wanted = agreed("PEAL_CUDA_TRANSPORT", std::getenv("PEAL_CUDA_TRANSPORT"));
  PEAL_CHECK(wanted.empty() || wanted == "nccl" || wanted == "cuda_ipc" || wanted == "mpi",
             "PEAL_CUDA_TRANSPORT: expected nccl, cuda_ipc or mpi, got '", wanted, "'");
  agreed("PEAL_IPC_ONE_SHOT", std::getenv("PEAL_IPC_ONE_SHOT"));
  if (wanted == "nccl" || (wanted.empty() && own)) return attach_nccl(group_, device);
  if (wanted != "mpi") {
    const std::string obstacle = attach_cuda_ipc(group_, device);
    if (obstacle.empty()) return;
    group_.check();
    PEAL_CHECK(wanted.empty(), obstacle);
    if (is_main()) log_info("collectives on devices go through MPI: ", obstacle);
  }
  const bool over_mpi = group_.transport() == "mpi";
  PEAL_CHECK(over_mpi || wanted != "mpi",
             "PEAL_CUDA_TRANSPORT: mpi, but the ranks' messages go over ", group_.transport());
  const auto reach = group_.all_gather_object(over_mpi && mpi_reaches_devices() ? "yes" : "no");
  if (std::find(reach.begin(), reach.end(), "no") == reach.end())
    attach_device_aware(group_, device);
}

Device Job::device(const std::string& text) {
  const Device chosen = choose_device(text, where_, device_count(DeviceType::cuda));
  const DeviceDescription description = describe(chosen);
  const bool tells = world() > 1 && chosen.type != DeviceType::cpu;
  report(LogLevel::info, tells ? device_report(chosen, description, where_) : "");
  // As NCCL sees it: a process with an NCCL_HOSTID of its own has its device for itself.
  const char* host = std::getenv("NCCL_HOSTID");
  const std::string own = description.uuid.empty() || host == nullptr
                              ? description.uuid
                              : concat(description.uuid, " of NCCL_HOSTID ", host);
  const auto uuids = group_.all_gather_object(own);
  const std::string warning = sharing_warning(uuids);
  if (is_main() && !warning.empty()) log_warning(warning);
  const bool everyone_has_one = std::find(uuids.begin(), uuids.end(), std::string()) == uuids.end();
  if (world() == 1 || !everyone_has_one) return chosen;
  bind_near(chosen);
  attach(chosen, warning.empty());
  return chosen;
}

const comm::ProcessGroup& Job::shrink() {
  const auto refuse = [&](const std::string& why) {
    fail(concat("[launch] rank ", rank(), " of ", world(), ": shrink() ", why));
  };
  if (started_mpi_) {
    refuse(
        "is not for ranks that MPI started, whose launcher ends them all when one dies: start "
        "them by peal-run --keep-survivors, or again from a checkpoint, by peal-run "
        "--max-restarts or --elastic");
  }
  const bool by_program = where_.launcher == "threads" || where_.launcher == "processes";
  if (world() == 1 && !by_store_ && !by_program) {  // nobody to lose; as where nobody has died
    group_.abort("[launch] shrink() has made another group: this one is over");
    return group_ = comm::ProcessGroup::alone();
  }
  if (!by_store_) {
    refuse(
        "is for ranks that are processes of their own, started by peal-run --keep-survivors or by "
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; these were not");
  }
  comm::ProcessGroup left = by_store_->shrink(group_);
  flight_signal_.reset();  // it has the old group, which SIGUSR1 shows until then
  group_ = std::move(left);
  where_.rank = group_.rank();
  where_.world = group_.world();
  tag_log(where_);
  if (world() > 1) flight_signal_ = std::make_unique<FlightSignal>(group_);
  return group_;
}

Job::~Job() {
  flight_signal_.reset();
  if (inherited()) return;  // a child's end is not the rank's
  const bool failed = group_.poisoned() || std::uncaught_exceptions() > unwinding_;
  if (failed) {
    group_.poison(concat("[launch] rank ", rank(), " was left by an exception"));
    return;  // MPI's own shutdown would wait for ranks that may be gone
  }
  try {  // MPI's shutdown waits for all without an end: they come together here, with one
    group_.barrier("the end of its program").wait();
    if (by_store_) by_store_->end();
  } catch (const std::exception& error) {
    log_error(error.what());
    return;
  }
  group_ = {};
  if (started_mpi_) finish_mpi();
}

namespace {

// Of a program that `what` ended on this rank: the other ranks, which end with it too, and people,
// once.
void tell_everyone(const Job* job, const std::string& what) {
  if (job == nullptr || job->inherited()) return log_error(what);
  const std::string told = what.starts_with("[") ? what : concat("[rank ", job->rank(), "] ", what);
  comm::GroupBody& body = comm::body_of(job->group());
  comm::Control& control = body.lane->control();
  control.poison(told);
  if (control.is_to_tell(told)) log_error(what);
  job->group().poison(told);  // other nodes, too
  body.write_flight_of_failure();
  try {  // where everybody was when it happened
    job->group().write_trace();
  } catch (const std::exception& second) {
    log_error(second.what());
  }
  body.engine->end_beside();  // nothing else sends from here on
  body.lane->transport().leave();
  control.leave(std::chrono::milliseconds(500));
}

}  // namespace

int run_main(const std::function<void(Job&)>& f) {
  std::unique_ptr<Job> job;
  int status = 0;
  try {
    job = std::make_unique<Job>();
    try {
      f(*job);
    } catch (const Terminated& end) {
      if (job->is_main() && !job->inherited()) log_warning(end.what());
      status = 128 + end.signal;
    }
    if (!job->inherited()) {
      // Nobody is done while another may still fail.
      job->group().barrier("the end of its program").wait();
      job->group().write_trace();
    }
    job.reset();
    tell_repeated_warnings();
    return status;
  } catch (...) {
    tell_everyone(job.get(), words_of_failure());
  }
  tell_repeated_warnings();
  // Neither MPI's shutdown nor static destructors may wait for ranks that are gone.
  std::fflush(nullptr);
  std::_Exit(1);
}

void rank0_first(const comm::ProcessGroup& group, const std::function<void()>& f) {
  std::exception_ptr error;
  std::string message;
  if (group.rank() == 0) {
    try {
      const auto busy = group.busy("rank0_first");
      f();
    } catch (...) {
      error = std::current_exception();
      message = concat("!", words_of_failure());
    }
  }
  const std::string said = group.all_gather_object(message)[0];
  if (error) std::rethrow_exception(error);
  if (!said.empty()) {
    const std::string words = concat("rank0_first: rank 0 failed: ", said.substr(1));
    if (said.substr(1).starts_with(out_of_memory_words)) throw OutOfMemory(words);
    fail(words);
  }
  if (group.rank() != 0) f();
}

}  // namespace peal::launch
