// SPDX-License-Identifier: Apache-2.0
// Process group (MPI: communicator): ranks that run collectives together, the same calls, with
// matching arguments, in the same order on every rank. One implementation serves every transport.
//
// ProcessGroup is a handle: copies are the same group, which goes with the last of them. One that
// is empty is no group: what new_group() and split() give to ranks that are not in it. Ask it with
// `if (group)`; every call on it is an Error.
//
// Collectives start at once and return Work; the result is there, and the buffers are the caller's
// again, after Work::wait(). Any number may be in flight. A group of one does nothing, quickly.
//
// Tensors may lie on a device, on some ranks or on all. An operation comes after what the caller's
// current stream held when it was called, and before what that stream gets after Work::wait().
// Where the group has a transport of that device (attach()), it moves collectives whose tensors all
// lie there, on every rank; everything else, messages too, is copied through page-locked memory.
// Those that such a transport moves can be captured in a graph (autograd/core/graph.h); others are
// an Error there. When a rank fails, dies, or calls something else than the others, every rank gets
// an Error that says which rank and what, and the group is of no further use: within seconds, but
// where ranks wait in calls of different groups and a process has several threads that use groups,
// which ends by PEAL_TIMEOUT.
//
// A child by fork() has no part in a group of several: what it calls is an Error there, and the end
// of its handles, and of what it holds, is nothing to the others.
//
// Environment: PEAL_ALGO (selection.h), PEAL_DETERMINISTIC (1: the bits of sums do not depend on
// sizes; selection.h), PEAL_TUNING (tuning.h), PEAL_DEBUG (algo: rank 0 logs what runs
// collectives), PEAL_TIMEOUT (seconds an operation may take; default 600), PEAL_TRACE (a folder for
// what the ranks did and when; recorder.h), PEAL_FLIGHT (a folder for the last operations of every
// rank, written when one fails; flight_record.h). Thread safety: one thread at a time issues
// collectives.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/label.h>
#include <peal/comm/group/work.h>
#include <peal/comm/record/operation_counters.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/schedule/schedule.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

struct GroupBody;
class Transport;

// One of the messages of batch_isend_irecv().
struct P2POp {
  Direction direction;  // send or recv
  View data;
  int peer;  // of a receive also any_source
  int tag = 0;
};

class ProcessGroup {
 public:
  struct Options {
    std::chrono::milliseconds deadline{600'000};
    std::string algorithms{};  // as PEAL_ALGO
    std::string trace{};       // as PEAL_TRACE: a folder, or empty
    std::string flight{};      // as PEAL_FLIGHT: a folder, or empty
    // Who waits for longer than this logs, and again after twice as long each time, who waits for
    // whom: one rank for all that wait in that call.
    std::chrono::milliseconds stall_warning{10'000};
    // Of device memory that is staged, how many bytes are copied at a time; the ranks' may differ.
    std::size_t segment = std::size_t{4} << 20;
    bool shared_memory = true;   // ranks of one node use it; as PEAL_SHARED_MEMORY, 0 or 1
    std::string tuning{};        // a file of tuning.h, rank 0's; empty: what is built in
    bool tells_choices = false;  // as PEAL_DEBUG=algo, rank 0's
    // As PEAL_DETERMINISTIC, 0 or 1: every sum is made from rank 0 to the last, so that its bits do
    // not depend on how tensors are cut into messages, nor on what else travels with them
    // (selection.h). Slower where messages do it, above all between nodes.
    bool deterministic = false;
    // As the PEAL_ variables say. Error that names the variable, where a value is none of its.
    static Options from_environment();
  };

  // No group. Those that are come from run_ranks() (start/threads.h), mpi_group() (start/mpi.h),
  // alone(), and new_group() and split() of another.
  ProcessGroup() = default;
  // A group of one rank that needs no transport.
  static ProcessGroup alone();
  // Whether it is a group.
  explicit operator bool() const { return body_ != nullptr; }

  // This rank's number in the group, and how many there are. All numbers of ranks here (root, to,
  // from, P2POp::peer) are those of the group, not of the world that it is a part of.
  int rank() const;
  int world() const;
  // The number in the world of a rank of the group (PyTorch: get_global_rank), and the other way
  // round (get_group_rank). Error for a rank that is not in it.
  int global_rank(int rank) const;
  int group_rank(int global_rank) const;
  // What messages of CPU tensors go over, in a word, for people.
  std::string_view transport() const;
  // Which rank is on which node.
  const Topology& nodes() const;
  // Some rank of the world has to give way to others, for there are more than cores.
  bool crowded() const;

  // Sizes are in elements. `label` says what the operation is for (label.h). Buffers are apart, or
  // one lies in the other as each says for calls in place; anything else is an Error.
  // Every rank's data becomes the reduction over all ranks. (sum, avg, prod, min, max, bit
  // operations)
  [[nodiscard]] Work all_reduce(const View& data, ReduceOp op = ReduceOp::sum,
                                const Label& label = {}) const;
  // As above, out of place. Error where the sizes are not equal; and here and in every reduction
  // for premul_sum, which needs a factor.
  [[nodiscard]] Work all_reduce(const View& out, const View& in, ReduceOp op,
                                const Label& label = {}) const;
  // data = (op over all ranks of factor * data), element by element.
  [[nodiscard]] Work all_reduce_premultiplied(const View& data, double factor,
                                              const Label& label = {}) const;
  // Every rank's data, of one size, becomes that of `root`. The root's own keeps its version, for
  // autograd, as it keeps its bytes; that it was sent is counted apart
  // (docs/decisions/0011-mixed-precision.md).
  [[nodiscard]] Work broadcast(const View& data, int root = 0, const Label& label = {}) const;
  // out (world * in) = the ranks' in, by rank. In place: in is out's own part.
  [[nodiscard]] Work all_gather(const View& out, const View& in, const Label& label = {}) const;
  // As above with in.count == counts[rank()], out.count == their sum; counts are equal on all
  // ranks. Error, here and in all that take counts, where these or the sizes are other ones.
  [[nodiscard]] Work all_gather_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                                  const Label& label = {}) const;
  // out (in / world) = this rank's part of the reduction. In place: out is in's own part.
  [[nodiscard]] Work reduce_scatter(const View& out, const View& in, ReduceOp op = ReduceOp::sum,
                                    const Label& label = {}) const;
  // As above with in.count == the sum of counts, out.count == counts[rank()]; Errors as there, and
  // as of all_gather_v().
  [[nodiscard]] Work reduce_scatter_v(const View& out, const View& in,
                                      std::vector<std::int64_t> counts, ReduceOp op = ReduceOp::sum,
                                      const Label& label = {}) const;
  // Done when every rank has called it.
  [[nodiscard]] Work barrier(const Label& label = {}) const;
  // Waits until every rank has called it (PyTorch: monitored_barrier). Where some have not when
  // rank 0 has waited for `timeout`, the group fails, with an error that names them all; where rank
  // 0 has not when another has waited for so long, with one that says so. Error in a graph that is
  // captured.
  void monitored_barrier(std::chrono::milliseconds timeout) const;
  // root's data becomes the reduction over all ranks, element by element; the others' keeps its
  // value. Error for premul_sum.
  [[nodiscard]] Work reduce(const View& data, int root = 0, ReduceOp op = ReduceOp::sum,
                            const Label& label = {}) const;
  // root's out (world * in) = the ranks' in, by rank; out is not read on the others.
  [[nodiscard]] Work gather(const View& out, const View& in, int root = 0,
                            const Label& label = {}) const;
  // out = this rank's part of root's in (world * out); in is not read on the others.
  [[nodiscard]] Work scatter(const View& out, const View& in, int root = 0,
                             const Label& label = {}) const;
  // The same with counts[r] elements of rank r, one behind the other; counts are equal on all
  // ranks. Errors: as of all_gather_v().
  [[nodiscard]] Work gather_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                              int root = 0, const Label& label = {}) const;
  [[nodiscard]] Work scatter_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                               int root = 0, const Label& label = {}) const;
  // Part d of in goes to rank d; part s of out comes from rank s. Out of place. Error where
  // in.count does not divide by the number of ranks.
  [[nodiscard]] Work all_to_all(const View& out, const View& in, const Label& label = {}) const;
  // counts[s * world + d]: elements from rank s to rank d; equal on all ranks. Errors: as of
  // all_gather_v().
  [[nodiscard]] Work all_to_all_v(const View& out, const View& in, std::vector<std::int64_t> counts,
                                  const Label& label = {}) const;

  // The same by this rank's own numbers: out_counts[s] elements come from rank s, in_counts[d] go
  // to rank d (PyTorch: all_to_all_single with splits). The ranks tell each other first, and wait
  // for that; where two of them disagree, or the sizes of one are not those of its numbers, all get
  // an Error that says so, and the group goes on.
  [[nodiscard]] Work all_to_all_single(const View& out, const View& in,
                                       const std::vector<std::int64_t>& out_counts,
                                       const std::vector<std::int64_t>& in_counts,
                                       const Label& label = {}) const;

  // One message, matched by rank, type and tag (0 to 65535) in the order of the calls. The sizes
  // must be equal. Messages are no collectives: ranks may issue them in any order among the others.
  [[nodiscard]] Work send(const View& data, int to, int tag = 0) const;
  // `from` may be any_source: whoever sends; Work::source() says who it was. Over MPI such a
  // message has less than 1 GiB. data has the size of what is sent.
  [[nodiscard]] Work recv(const View& data, int from, int tag = 0) const;

  // Several messages at once. Those with one peer, direction, type and tag match in their order in
  // the list, and a receive from any source takes part in that: listed before a receive that names
  // the sender, it may get that one's message. The order of others does not matter. Nothing is sent
  // if one of them cannot be.
  [[nodiscard]] Work batch_isend_irecv(const std::vector<P2POp>& ops) const;

  // Lists of tensors as one operation for each type among them, which travels as one buffer. Every
  // rank gives as many tensors of the same sizes and types, in the same order. Error for
  // premul_sum.
  [[nodiscard]] Work all_reduce_coalesced(const std::vector<View>& data,
                                          ReduceOp op = ReduceOp::sum,
                                          const Label& label = {}) const;
  // Every rank's data[k] become those of `root`.
  [[nodiscard]] Work broadcast_coalesced(const std::vector<View>& data, int root = 0,
                                         const Label& label = {}) const;
  // out[k] (world * in[k]) = the ranks' in[k], by rank.
  [[nodiscard]] Work all_gather_coalesced(const std::vector<View>& out, const std::vector<View>& in,
                                          const Label& label = {}) const;
  // out[k] (in[k] / world) = this rank's part of the reduction of in[k]. Error for premul_sum.
  [[nodiscard]] Work reduce_scatter_coalesced(const std::vector<View>& out,
                                              const std::vector<View>& in,
                                              ReduceOp op = ReduceOp::sum,
                                              const Label& label = {}) const;

  // A schedule of the caller's own, to try it before it is in algorithms/table.h: every rank gives
  // its program, as schedule.h says for `what`. verify() tells whether the programs are right;
  // wrong ones may wait until the deadline, but touch no memory beyond `in` and `out`, or, if they
  // are one-sided, beyond what ranks share. Errors: no plan, one that uses more elements than `in`
  // and `out` have, talks to a rank that is none, or receives from any source; premul_sum; a
  // reduction in deterministic mode.
  [[nodiscard]] Work run(Collective what, std::shared_ptr<const Plan> plan, const View& out,
                         const View& in, ReduceOp op = ReduceOp::sum,
                         const Label& label = {}) const;

  // A collective by that algorithm of algorithms/table.h, or `native`, whatever would be chosen for
  // it; to compare them. `counts`, and what `in` and `out` have, as schedule.h says for `what`. All
  // ranks name the same. Error where it does not serve this group.
  [[nodiscard]] Work run(Collective what, std::string_view algorithm, const View& out,
                         const View& in, std::vector<std::int64_t> counts,
                         ReduceOp op = ReduceOp::sum, int root = 0, const Label& label = {}) const;

  // Everyone's text (bytes of any length), by rank. Waits.
  std::vector<std::string> all_gather_object(const std::string& mine) const;
  // On root everyone's text, by rank; empty on the others. Waits.
  std::vector<std::string> gather_object(const std::string& mine, int root = 0) const;
  // This rank's of root's texts, one for each rank; the others' are not read. Waits. Error, on all
  // ranks, where root has not one for each.
  std::string scatter_object(const std::vector<std::string>& texts, int root = 0) const;
  // A text as a message, of which send() and recv() see two under that tag. Wait.
  void send_object(const std::string& text, int to, int tag = 0) const;
  std::string recv_object(int from, int tag = 0) const;
  // root's text (bytes of any length); the others' is not read. Waits.
  std::string broadcast_object(const std::string& mine, int root = 0) const;

  // A group over some ranks of this one, in this order; empty on ranks that are not listed. Every
  // rank of this group calls it, with the same list, and the same deadline (a millisecond at least,
  // at most 1e9 s), where it is not to be this group's.
  ProcessGroup new_group(const std::vector<int>& ranks,
                         std::optional<std::chrono::milliseconds> deadline = {}) const;
  // Groups of the ranks with equal colour, ordered by key, then rank; empty for a negative colour
  // (MPI_Comm_split).
  ProcessGroup split(int colour, int key = 0) const;

  // Zeroed memory for collectives, a tensor of that shape, by the same calls in the same order on
  // all ranks: transports that can, reach into each other's, or move it without own copies. Over
  // NCCL it is the tensor of all ranks or of none, at one offset of one allocate(): else NCCL
  // may hang, or reduce what is not meant. Error where ranks agree on it and a graph is captured.
  Tensor allocate(const Shape& shape, DType dtype = DType::f32, Device device = {}) const;

  // Collectives on tensors of the transport's device go over it from now on, of later sub-groups
  // too. Collective; REQUIRES: of as many ranks, in the same order (transport/nccl/nccl.h makes
  // one). Error for a transport that is none, of other ranks, or of the CPU.
  void attach(std::unique_ptr<Transport> transport) const;
  // "nccl" or "device-aware mpi" where one is attached for the device; else that of the CPU,
  // through which it is staged.
  std::string_view transport(Device device) const;

  // Under PEAL_TRACE, writes what this rank and its sub-groups have done to its file and ends the
  // recording; else does nothing. Collective, unless the group is poisoned. Error on every rank
  // where a file cannot be written. Where nobody has, the group's end writes, and only logs.
  void write_trace() const;

  // Lets operations in flight go forward; cheap when there are none.
  void progress() const;
  // Tells every other rank that this one has failed; their pending and later operations throw the
  // message.
  void poison(const std::string& message) const;
  // As poison(), and what this rank has in flight in the group fails at once: wait() throws the
  // message (NCCL: ncclCommAbort). Its buffers hold no result, and are the caller's again, but for
  // those that others may still write, to the process's end: over MPI, whose requests cannot be
  // called back, and in memory of allocate(); on a device, until its queue is empty. Their memory
  // is kept from all that is allocated later; nothing keeps the caller from it.
  void abort(const std::string& message) const;
  // Flight recorder: the last operations that this rank has begun, of all groups of its world, and
  // how far they came, as a table. Any thread, whatever the ranks are stuck in.
  std::string flight(std::size_t most = 50) const;
  // The same of the last 2048, for `peal-schedule flight`: files in the folder, this rank's. `why`
  // goes along. Error where they cannot be written.
  void write_flight(const std::string& folder, const std::string& why) const;
  // How many calls of each collective, and messages, this rank has begun in the group, of how many
  // bytes, how many of them failed, and how long it waited (operation_counters.h). Any thread.
  //
  //   const auto before = group.counters();
  //   ...
  //   fmt::print("{}", group.counters() - before);
  OperationCounters counters() const;
  // While what is returned lives, this rank says that it works, on something that the others wait
  // for: to them it has not failed, however long it takes, as long as its process lives and moves.
  // Ranks of other nodes hear it now and then (a heartbeat), over MPI where it has threads
  // (MPI_THREAD_MULTIPLE, which a Job asks for). `what`: for messages, in a few words, of which the
  // first 63 bytes are kept: "saves a checkpoint".
  //
  //   const auto busy = group.busy("unpacks the data");
  [[nodiscard]] std::shared_ptr<void> busy(std::string_view what = {}) const;
  // Throws what has failed on any rank, or which rank's process is gone.
  void check() const;
  // True after a failure on any rank: collectives only throw, and nothing may wait for the others.
  bool poisoned() const;
  // How many operations were issued; equal on all ranks that make the same calls.
  std::uint64_t sequence() const;

 private:
  friend GroupBody& body_of(const ProcessGroup& group);
  friend ProcessGroup group_of(std::shared_ptr<GroupBody> body);
  [[noreturn]] static void fail_without_group();
  GroupBody& body() const {
    if (!body_) fail_without_group();
    return *body_;
  }

  std::shared_ptr<GroupBody> body_;
};

}  // namespace peal::comm
