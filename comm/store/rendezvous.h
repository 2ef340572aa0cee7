// SPDX-License-Identifier: Apache-2.0
// Rendezvous: the ranks of a group that is about to exist tell each other a few bytes (a segment's
// name, a process id, NCCL's unique id). It is collective, and so can be over whatever joins the
// ranks already: MPI (transport/mpi/mpi_rendezvous.h), a group that exists
// (group/group_rendezvous.h), or a store, where nothing does. Thread safety: one thread at a time.
#pragma once

#include <peal/comm/store/store.h>

#include <string>
#include <vector>

namespace peal::comm {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // This rank's number, from 0, and how many there are.
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Everyone's text, by rank. Collective; texts may differ in length. An Error says which rank is
  // missing or what is wrong; the rendezvous is then of no further use.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  // For who waits for the others elsewhere: Error where one of them is known to be gone. Never
  // waits.
  virtual void check() {}
};

// Over a store, which must outlive it.
class StoreRendezvous : public Rendezvous {
 public:
  // `name`: equal on all ranks. Those of one name on one store share its exchanges: ranks come to
  // them in one order. Error for a rank outside of the world.
  StoreRendezvous(Store& store, int rank, int world, std::string name = "exchange");
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  // Rank 0, which may be the one that serves the store, returns when all have got the texts; they
  // are in the store no more then. Error for more bytes than a store takes, too.
  std::vector<std::string> exchange(const std::string& mine) override;
  void check() override { store_.check(); }

 private:
  Store& store_;
  int rank_, world_;
  std::string name_;
};

}  // namespace peal::comm
