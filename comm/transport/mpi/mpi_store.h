// SPDX-License-Identifier: Apache-2.0
// MpiStore: the bootstrap's Store over a communicator. REQUIRES: it outlives the store.
#pragma once

#include <peal/comm/store/store.h>

#include <mpi.h>

namespace peal::comm {

class MpiStore : public Store {
 public:
  explicit MpiStore(MPI_Comm communicator);
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::vector<std::string> exchange(const std::string& mine) override;

 private:
  MPI_Comm communicator_;
  int rank_ = 0, world_ = 1;
};

}  // namespace peal::comm
