// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/store/tcp_store.h>
#include <peal/launch/torchrun.h>

#include <charconv>
#include <string_view>

namespace peal::launch {

std::optional<MasterAddress> master_address(const Rank& rank, const Environment& env) {
  const auto value = [&](const char* name) {
    const char* const text = env(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string host = value("MASTER_ADDR"), digits = value("MASTER_PORT");
  if (rank.launcher != "torchrun" || (host.empty() && digits.empty())) return std::nullopt;
  // A script under srun or mpirun sets them too: its ranks have MPI, which goes between nodes. What
  // torchrun itself starts there has one launcher's rank for all.
  const bool by_mpi = !value("PMIX_RANK").empty() || !value("PMI_RANK").empty();
  if (by_mpi && value("TORCHELASTIC_RUN_ID").empty()) return std::nullopt;
  PEAL_CHECK(!host.empty() && !digits.empty(), "[launch] the environment has ",
             host.empty() ? "MASTER_PORT but no MASTER_ADDR" : "MASTER_ADDR but no MASTER_PORT",
             ": set both, for rank 0 listens there");
  int port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, problem] = std::from_chars(digits.data(), end, port);
  const bool by_agent = value("TORCHELASTIC_USE_AGENT_STORE") == "True";
  PEAL_CHECK(problem == std::errc{} && stop == end && port > 0 && port + by_agent <= 65535,
             "[launch] the environment variable MASTER_PORT is '", digits,
             "', expected a port, 1 to ", 65535 - by_agent);
  const bool one_node = rank.node_said && rank.local_world == rank.world;
  const std::string name = value("TORCHELASTIC_RUN_ID"),
                    restart = value("TORCHELASTIC_RESTART_COUNT");
  return MasterAddress{.host = one_node ? "127.0.0.1" : host,
                       .port = port + by_agent,
                       .run = name.empty() ? "" : concat(name, "/", restart)};
}

RanksByStore::RanksByStore(const Rank& rank, const MasterAddress& master, const std::string& secret)
    : options_(comm::ProcessGroup::Options::from_environment()),
      store_(std::make_unique<comm::TcpStore>(master.host, master.port, rank.rank, rank.world,
                                              comm::Patience{.deadline = options_.deadline},
                                              master.run, secret)),
      ranks_(*store_, rank.rank, rank.world, "job") {}

comm::ProcessGroup RanksByStore::group() { return comm::processes_group(ranks_, options_); }

}  // namespace peal::launch
