// SPDX-License-Identifier: Apache-2.0
// Shrink (NCCL: ncclCommShrink; MPI's ULFM: MPIX_Comm_shrink): the ranks of a world that are left
// agree on who they are, and meet again, for a group of their own.
//
// They do it on the board of the world's group, in memory that they share already: each says there
// that it has come to this call. When every rank of the world has, or its process is gone, the
// lowest that is left decides: it opens a TCP store at the loopback device, and says who is left
// and at which port. What it has said stands, also if it dies then: whoever waits for one that is
// gone throws, and the next call decides anew. So one call has one decision at most, and who has
// missed it sees others in a later call. Nothing is written to any file.
//
// Thread safety: one thread at a time.
#pragma once

#include <peal/comm/control/control.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/tcp_store.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::comm {

class Survivors {
 public:
  // What one call came to: ranks of the first world, ascending, and the store at which they meet.
  // It has `control` until started(), and until then throws where one of them has died; from then
  // on they may end. `call`: how often they have called, from 1.
  struct Left {
    std::uint64_t call = 0;
    std::vector<int> ranks;
    std::unique_ptr<TcpStore> store;
    std::shared_ptr<bool> starts = std::make_shared<bool>(true);
    void started() { *starts = false; }
  };

  // Collective over the ranks of a world: each watches the others' processes from then on.
  explicit Survivors(Rendezvous& world);
  ~Survivors();
  Survivors(const Survivors&) = delete;
  Survivors& operator=(const Survivors&) = delete;

  // Collective over who is left, who have called it as often. `control`: of the world's group.
  // `works`: whether a rank of the first world says so now (Control::works()): while one that has
  // not come does, the deadline does not run. `run` and `secret` as TcpStore's. Error, with the
  // ranks, where some that live have not come within the deadline; where this rank cannot watch the
  // others' processes, for they are on several nodes or in several namespaces; and where others are
  // in a later call, however far this one is.
  Left meet(Control& control, std::chrono::milliseconds deadline,
            const std::function<bool(int)>& works, const std::string& run,
            const std::string& secret);

 private:
  bool is_gone(int rank) const;
  void check(const Control& control, const std::vector<int>& ranks, std::uint64_t call) const;
  void check_call(int rank, const std::optional<Row>& row, std::uint64_t call) const;
  Left open(Control& control, const std::shared_ptr<const Row>& mine, const std::vector<int>& ranks,
            int port, const Patience& patience, const std::string& run, const std::string& secret);

  int rank_, world_;
  std::string obstacle_;          // why nobody can be watched; empty: they can
  std::vector<int> descriptors_;  // of processes, by rank; below 0: its own, and the dead
  std::uint64_t calls_ = 0;
};

}  // namespace peal::comm
