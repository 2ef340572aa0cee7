// SPDX-License-Identifier: Apache-2.0
// Ranks by environment variables, without MPI (PyTorch: init_method="env://"): what torchrun and
// scripts set, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; or the last two beside what srun
// --mpi=none sets. They meet at a TCP store, which rank 0 serves; their messages go through the
// memory of a node, and over TCP between nodes. Those that are left when some have died can meet
// again, at a store that the lowest of them serves. Thread safety: the main thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/start/survivors.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/tcp_store.h>
#include <peal/launch/rank.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

struct MasterAddress {
  std::string host;
  int port = 0;
  std::string
      run;  // tells jobs apart that could have the port: torchrun's, or Slurm's job and step
};

// Where the variables say that ranks of torchrun or of a Slurm step meet; nothing where they don't,
// or where MPI's launcher, or srun for MPI, started each rank (PMIX_RANK, PMI_RANK) and no torchrun
// did. Under torchrun its agent has the port, and the next one is taken. Ranks that are all on one
// node meet at its loopback device, whatever the variables call it. Error for one of the two
// without the other, and for a port that is none.
std::optional<MasterAddress> master_address(const Rank& rank, const Environment& env);

class RanksByStore {
 public:
  // `secret`: of PEAL_STORE_SECRET, or empty. Error where they don't all come within PEAL_TIMEOUT,
  // or the port is taken.
  RanksByStore(const Rank& rank, const MasterAddress& master, const std::string& secret);

  // All of them. Once.
  comm::ProcessGroup group();
  // When all are done; the group lives still. A process that goes before has died, to the others.
  void end() { ranks_->exchange("the end"); }
  // Those that are left of group(), which with all within it fails; `now` is what it gave, or the
  // last call of this. Collective over them; Error as Survivors::meet()'s, and where one of them
  // dies meanwhile: then they all call it again.
  comm::ProcessGroup shrink(const comm::ProcessGroup& now);

 private:
  void hear_of_crossing(const comm::ProcessGroup& group);

  comm::ProcessGroup::Options options_;
  std::unique_ptr<comm::Survivors> survivors_;  // the stores ask it
  std::unique_ptr<comm::TcpStore> store_;
  std::unique_ptr<comm::StoreRendezvous> ranks_;
  std::string run_, secret_;
  comm::ProcessGroup first_;  // after a shrink(), on whose board all later ones meet
  std::vector<int> left_;     // ranks of first_, by their rank now
};

}  // namespace peal::launch
