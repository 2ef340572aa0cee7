// SPDX-License-Identifier: Apache-2.0
// GroupBody: what a process group consists of, behind the handle that users hold. It goes with the
// last handle; its operations in flight go on, in their lane, as long as the process has another
// group (Engine::remove()). What users call
// (process_group.h) says what is to be run; the body chooses the transport and the plan, takes the
// number, and gives the operation to the engine. Thread safety: as of ProcessGroup.
#pragma once

#include <peal/autograd/core/trace.h>
#include <peal/comm/engine/captured.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/group/selection.h>
#include <peal/comm/group/told_choices.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

namespace peal::comm {

struct Entry;

// What rank 0 of a world has found where it runs, and all of that world, and of groups within it,
// go by.
struct Found {
  std::string tuning{};   // what it has read (tuning.h)
  bool crowded = false;   // its node has more ranks than cores
  std::uint64_t run = 0;  // of this world, as in its flight records
};

struct GroupBody : std::enable_shared_from_this<GroupBody> {
  // As make_group().
  GroupBody(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
            std::shared_ptr<Engine> shared, const ProcessGroup::Options& wanted, Topology where,
            std::vector<int> ranks, std::uint64_t id);
  ~GroupBody();
  GroupBody(const GroupBody&) = delete;
  GroupBody& operator=(const GroupBody&) = delete;

  // A collective whose sizes are checked: over the transport of its tensors, as the selection says,
  // or by the algorithm that is named.
  Work start(CollectiveCall call, const Label& label, std::string_view named = {});
  // An operation of the group; without a plan it is the transport's own collective.
  Work submit(Call call, std::shared_ptr<const Plan> plan, Transport& transport, Channel channel,
              std::string_view label, std::uint64_t window_turn = 0, const Exchange& begun = {});
  // Of equal sizes and types.
  Work all_reduce(const View& out, const View& in, ReduceOp op, const Label& label);
  // The transport of the device, or that of the CPU.
  Transport& moves(Device device) const;
  // The transport of a device if everything lies there.
  Transport& route(const CollectiveCall& call) const;
  // The next number, and with it what else must be equal for ranks to meet.
  Channel next_channel(const CollectiveCall& call, Transport& transport,
                       std::uint64_t* window_turn = nullptr);
  // Error where a one-sided plan cannot run now: the same on all ranks.
  void check_window(const Plan& plan, Transport& transport, std::string_view what) const;
  // True where no graph is captured, or the transport takes part in its replays.
  bool captures(Transport& transport) const;
  [[noreturn]] void refuse_capture(const std::string& call, Transport& transport) const;
  // After an error of this rank's: where the transport of the device has ended with it, which the
  // others do not see, the group has failed, and all are told.
  void tell_end_of(Transport& transport, const Error& error);
  // Graphs that hold operations of the group are of no more use.
  void drop_graphs();
  // In a child that fork() made: connections, board and MPI are the parent's.
  bool inherited() const { return mark_.inherited(); }
  // Error there, unless the group is of one, which shares nothing.
  void refuse_inherited() const {
    if (world > 1 && inherited()) fail_inherited();
  }
  // Where the group has failed, and PEAL_FLIGHT names a folder: files of all ranks of the node
  // (flight_record.h), once.
  void write_flight_of_failure() const noexcept;
  // How many operations were issued; equal on all ranks.
  std::uint64_t sequence() const { return engine->sequence(*lane); }

  ProcessGroup::Options options;
  std::vector<int> members;  // the world's ranks of this group
  int rank, world;
  std::shared_ptr<Lane> lane;
  std::shared_ptr<Engine> engine;
  Found found;
  Selection selection;
  Topology nodes;
  bool traces = false;         // the engine's recorder is of this group, and not written
  std::shared_ptr<Trace> ops;  // while it is: those of the thread that made the group
  bool made_ops = false;       // they are recorded for this alone

 private:
  // The last is the size of an element, of plans that depend on it.
  using PlanKey = std::tuple<Collective, std::string_view, std::int64_t, int,
                             std::vector<std::int64_t>, std::int64_t>;
  std::shared_ptr<const Plan> make_plan(const Entry& entry, const CollectiveCall& call,
                                        std::int64_t chunk_bytes) const;
  // A view of the call's counts.
  Problem problem_of(const CollectiveCall& call) const;
  std::shared_ptr<const Plan> plan_for(const CollectiveCall& call, const Choice& choice);
  // What runs the call; null for the transport's own.
  std::shared_ptr<const Plan> choose(const CollectiveCall& call, Transport& transport,
                                     std::string_view named);
  std::shared_ptr<const Plan> choose_anew(const CollectiveCall& call, Transport& transport,
                                          std::string_view named, bool in_order);
  bool may_be_immediate() const;
  Work start_in_window(CollectiveCall call, std::shared_ptr<const Plan> plan,
                       std::string_view label, bool may_be_known);
  Work go_on(CollectiveCall call, const Exchange& exchange, std::string_view label);
  Choice choose_algorithm(const CollectiveCall& call, Transport& transport, std::string_view named,
                          bool in_order);
  void check_overlap(const CollectiveCall& call) const;
  [[noreturn]] void fail_inherited() const;
  CapturedOperations& captured_by(Graph& graph);

  // Continuations run on other threads, and start collectives there: plans are kept for them all.
  std::mutex planning_;
  std::map<PlanKey, std::shared_ptr<const Plan>> plans_;
  ToldChoices told_;
  std::shared_ptr<ToldWarnings> told_warnings_;  // of a world of processes
  struct LastChoice {                            // most calls are like the one before
    Collective what{};
    DType dtype{};
    ReduceOp op{};
    int root = 0;
    DeviceType where{};
    bool in_order = false;
    std::vector<std::int64_t> counts{};
    std::shared_ptr<const Plan> plan{};  // null: no call yet
  } last_choice_;
  std::vector<std::weak_ptr<CapturedOperations>> captured_;  // the last may take more
  std::thread::id maker_ = std::this_thread::get_id();
  int unwinding_;  // exceptions that were under way there when it was made
  ForkMark mark_;
};

// Error where the handle is empty.
GroupBody& body_of(const ProcessGroup& group);
ProcessGroup group_of(std::shared_ptr<GroupBody> body);

// For whoever brings a transport (start/). Collective: the ranks compare versions and options, and
// all throw, naming what differs, where they don't agree. `nodes`: who is on which; empty where all
// are on one. A group within a world: its rank r is rank members[r] of the world; without members
// it is a world, and finds out itself what `found` says.
ProcessGroup make_group(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
                        std::shared_ptr<Engine> engine, const ProcessGroup::Options& options,
                        Topology nodes = {}, std::vector<int> members = {}, std::uint64_t id = 0,
                        const Found& found = {});

// members.cpp: of some ranks of a group: equal among them, and different from all that could meet
// them.
std::uint64_t subgroup_id(std::uint64_t group, std::uint64_t number, const std::vector<int>& ranks);

// trace.cpp: opens the world's files, and compares the clocks. Collective.
void start_trace(const ProcessGroup& group);
void note_ops(GroupBody& group, Recorder& recorder);

}  // namespace peal::comm
