// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/processes.h>
#include <peal/launch/torchrun.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <utility>

namespace peal::launch {

namespace {

std::string value_of(const Environment& env, const char* name) {
  const char* const text = env(name);
  return text == nullptr ? "" : text;
}

// What tells the job from others that could have its port.
std::string run_of(const Environment& env, bool by_srun) {
  const std::string job = value_of(env, by_srun ? "SLURM_JOB_ID" : "TORCHELASTIC_RUN_ID");
  if (job.empty()) return "";
  if (by_srun) return concat("slurm/", job, ".", value_of(env, "SLURM_STEP_ID"));
  return concat(job, "/", value_of(env, "TORCHELASTIC_RESTART_COUNT"));
}

// The group is over, and its file is no reason not to go on.
void end_trace(const comm::ProcessGroup& group) {
  try {
    group.write_trace();
  } catch (const Error& error) {
    log_error(error.what());
  }
}

}  // namespace

std::optional<MasterAddress> master_address(const Rank& rank, const Environment& env) {
  const bool by_srun = rank.launcher == "Slurm";
  const std::string host = value_of(env, "MASTER_ADDR"), digits = value_of(env, "MASTER_PORT");
  if ((rank.launcher != "torchrun" && !by_srun) || (host.empty() && digits.empty())) {
    return std::nullopt;
  }
  // A script under srun or mpirun sets them too: its ranks have MPI, which goes between nodes, but
  // for srun --mpi=none. What torchrun itself starts there has one launcher's rank for all.
  const bool by_mpi = !value_of(env, "PMIX_RANK").empty() || !value_of(env, "PMI_RANK").empty();
  const bool by_torchrun = !by_srun && !value_of(env, "TORCHELASTIC_RUN_ID").empty();
  if (by_mpi && !by_torchrun) return std::nullopt;
  PEAL_CHECK(!host.empty() && !digits.empty(), "[launch] the environment has ",
             host.empty() ? "MASTER_PORT but no MASTER_ADDR" : "MASTER_ADDR but no MASTER_PORT",
             ": set both, for rank 0 listens there");
  int port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, problem] = std::from_chars(digits.data(), end, port);
  const bool by_agent = !by_srun && value_of(env, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  PEAL_CHECK(problem == std::errc{} && stop == end && port > 0 && port + by_agent <= 65535,
             "[launch] the environment variable MASTER_PORT is '", digits,
             "', expected a port, 1 to ", 65535 - by_agent);
  const bool one_node = rank.node_said && rank.local_world == rank.world;
  return MasterAddress{
      .host = one_node ? "127.0.0.1" : host, .port = port + by_agent, .run = run_of(env, by_srun)};
}

RanksByStore::RanksByStore(const Rank& rank, const MasterAddress& master, const std::string& secret)
    : options_(comm::ProcessGroup::Options::from_environment()),
      store_(std::make_unique<comm::TcpStore>(master.host, master.port, rank.rank, rank.world,
                                              comm::Patience{.deadline = options_.deadline},
                                              master.run, secret)),
      ranks_(std::make_unique<comm::StoreRendezvous>(*store_, rank.rank, rank.world, "job")),
      run_(master.run),
      secret_(secret) {}

void RanksByStore::hear_of_crossing(const comm::ProcessGroup& group) {
  store_->at_crossing([body = comm::body_of(group).weak_from_this()](const std::string& message) {
    if (const auto here = body.lock()) here->lane->control().poison(message);
  });
}

comm::ProcessGroup RanksByStore::group() {
  survivors_ = std::make_unique<comm::Survivors>(*ranks_);
  comm::ProcessGroup group = comm::processes_group(*ranks_, options_, secret_);
  hear_of_crossing(group);
  return group;
}

comm::ProcessGroup RanksByStore::shrink(const comm::ProcessGroup& now) {
  comm::body_of(now).refuse_inherited();
  if (!first_) {
    first_ = now;
    left_.resize(static_cast<std::size_t>(now.world()));
    std::iota(left_.begin(), left_.end(), 0);
  }
  const auto works = [&, &control = comm::body_of(now).lane->control()](int rank) {
    const auto place = std::ranges::find(left_, rank);
    return place != left_.end() && control.works(static_cast<int>(place - left_.begin()));
  };
  auto left = survivors_->meet(comm::body_of(first_).lane->control(), options_.deadline, works,
                               run_, secret_);
  // What this rank has in flight there would never end.
  now.abort(
      "[launch] shrink() has made another group of the ranks that are left: this one is over");
  end_trace(now);
  comm::ProcessGroup::Options options = options_;
  if (!options.trace.empty()) options.trace += concat("/shrink-", left.call);
  const auto own = std::ranges::find(left.ranks, first_.rank()) - left.ranks.begin();
  auto ranks = std::make_unique<comm::StoreRendezvous>(*left.store, static_cast<int>(own),
                                                       static_cast<int>(left.ranks.size()), "job");
  comm::ProcessGroup group = comm::processes_group(*ranks, options, secret_);
  left.started();
  left_ = std::move(left.ranks);
  ranks_ = std::move(ranks);
  store_ = std::move(left.store);
  hear_of_crossing(group);
  return group;
}

}  // namespace peal::launch
