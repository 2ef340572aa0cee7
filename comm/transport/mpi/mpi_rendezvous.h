// SPDX-License-Identifier: Apache-2.0
// MpiRendezvous: a rendezvous over a communicator. It asks MPI again and again, and waits in it
// never, so that a rank that does not come is found. REQUIRES: the communicator outlives it,
// and its errors are returned.
#pragma once

#include <peal/comm/store/rendezvous.h>
#include <peal/comm/transport/mpi/communicator.h>

#include <mpi.h>

namespace peal::comm {

class MpiRendezvous : public Rendezvous {
 public:
  explicit MpiRendezvous(MPI_Comm communicator, Patience patience = {});
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::vector<std::string> exchange(const std::string& mine) override;

 private:
  MPI_Comm communicator_;
  MpiThreads threads_;
  Patience patience_;
  int rank_ = 0, world_ = 1;
};

}  // namespace peal::comm
