// SPDX-License-Identifier: Apache-2.0
// Coalescing of any mix of collectives and messages (PyTorch: _coalescing_manager; NCCL:
// ncclGroupStart and ncclGroupEnd): what is listed starts together, and is one Work. Those alike
// (of one kind and reduction, or one root) travel as one operation for each type among them, as the
// lists of all_reduce_coalesced() do; the others at the same time.
//
//   const Work work = coalescing(group, [&](CoalescedCalls& calls) {
//     calls.all_reduce(loss);
//     calls.broadcast(flags, 2);
//     calls.all_gather(lengths, length);
//     calls.all_reduce(weight);  // goes with loss
//     calls.send(halo, 1 - rank);
//     calls.recv(other_halo, 1 - rank);
//   });
//   work.wait();
//
// Nothing is under way before all are listed, and none may use what another writes. All ranks list
// the same collectives in the same order; messages are each rank's own. Thread safety: as of
// ProcessGroup.
#pragma once

#include <peal/comm/group/process_group.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace peal::comm {

class CoalescedCalls {
 public:
  // As ProcessGroup's, of the same sizes in elements, by the same rules.
  void all_reduce(const View& data, ReduceOp op = ReduceOp::sum);
  void broadcast(const View& data, int root = 0);
  void all_gather(const View& out, const View& in);
  void reduce_scatter(const View& out, const View& in, ReduceOp op = ReduceOp::sum);
  void reduce(const View& data, int root = 0, ReduceOp op = ReduceOp::sum);
  void gather(const View& out, const View& in, int root = 0);
  void scatter(const View& out, const View& in, int root = 0);
  void all_to_all(const View& out, const View& in);
  void send(const View& data, int to, int tag = 0);
  void recv(const View& data, int from, int tag = 0);

 private:
  friend Work coalescing(const ProcessGroup& group,
                         const std::function<void(CoalescedCalls&)>& list, const Label& label);
  // Those that travel as one.
  struct Alike {
    Collective what;
    ReduceOp op;
    int root;
    std::vector<View> out{}, in{};
  };
  void add(Collective what, const View& out, const View& in, ReduceOp op, int root, bool may_join);
  void check(const ProcessGroup& group) const;
  static Work start(const ProcessGroup& group, const Alike& calls, const Label& label);

  std::vector<Alike> alike_;
  std::vector<P2POp> messages_;
};

// Error, before anything starts, where two of them use one memory, and one writes there.
[[nodiscard]] Work coalescing(const ProcessGroup& group,
                              const std::function<void(CoalescedCalls&)>& list,
                              const Label& label = {});

}  // namespace peal::comm
