// SPDX-License-Identifier: Apache-2.0
// Which algorithm runs a call, and its plan.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/group/group_body.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

namespace peal::comm {

Problem GroupBody::problem_of(const CollectiveCall& call) const {
  return {.what = call.what,
          .rank = rank,
          .world = world,
          .root = call.root,
          .counts = call.counts,
          .nodes = nodes};
}

namespace {

// Bytes of an element where the program runs: buffers keep their type where all sums are made at
// once, in one memory.
std::int64_t element_of(const Entry& entry, const CollectiveCall& call) {
  return static_cast<std::int64_t>(
      size_of(entry.sees_nodes ? native_call(call).dtype : call.dtype()));
}

}  // namespace

// In shared memory pieces begin at lines of the cache, and chunks fit into the room.
std::shared_ptr<const Plan> GroupBody::make_plan(const Entry& entry, const CollectiveCall& call,
                                                 std::int64_t chunk_bytes) const {
  const std::int64_t element = element_of(entry, call);
  constexpr std::int64_t line = 64, room = Window::room_bytes;
  Problem problem = problem_of(call);
  if (entry.one_sided) {
    problem.align = std::max<std::int64_t>(line / element, 1);
    chunk_bytes = chunk_bytes > 0 ? std::min(chunk_bytes, room / 2) : room / 2;
  }
  if (chunk_bytes > 0) problem.chunk = std::max<std::int64_t>(chunk_bytes / element, 1);
  Plan made(comm::plan(entry, problem), std::string(entry.name));
  made.entry = entry.name;
  if (entry.at_once) made.sum_at_once(world);
  if (entry.one_sided && entry.at_once) made.send_room_with_signals();
  PEAL_CHECK(made.program.room * element <= room, "[comm] ", name(call.what), ": the algorithm ",
             entry.name, " has room for ", room, " bytes, not for ", made.program.room * element,
             "; choose direct_slices for them");
  if (!entry.otherwise.empty() && made.one_sided) {
    made.otherwise = make_plan(*find(call.what, entry.otherwise), call, chunk_bytes);
  }
  return std::make_shared<const Plan>(std::move(made));
}

std::shared_ptr<const Plan> GroupBody::plan_for(const CollectiveCall& call, const Choice& choice) {
  constexpr std::size_t most_plans = 512;  // ragged counts could otherwise fill the memory
  const std::lock_guard lock(planning_);
  const Entry* entry = find(call.what, choice.algorithm);
  PEAL_CHECK(entry != nullptr && entry->supports(world), "[comm] ", name(call.what),
             ": the algorithm ", choice.algorithm, " does not serve ", world, " ranks");
  if (plans_.size() >= most_plans) plans_.clear();
  const bool in_bytes = entry->one_sided || choice.chunk > 0;
  auto& plan = plans_[PlanKey(call.what, entry->name, choice.chunk, call.root, call.counts,
                              in_bytes ? element_of(*entry, call) : 0)];
  if (!plan) {
    // On all ranks, not on those alone that have others on their nodes.
    const std::set<int> some(nodes.node.begin(), nodes.node.end());
    PEAL_CHECK(!entry->one_sided || lane->window() != nullptr || some.size() == nodes.node.size(),
               "[comm] ", lane->who(), ", ", name(call.what), ": ", choice.algorithm,
               " needs memory that the ranks share");
    try {
      plan = make_plan(*entry, call, choice.chunk);
    } catch (const std::invalid_argument& error) {
      fail(concat("[comm] rank ", rank, ": ", error.what()));
    }
  }
  return plan;
}

// Only what all ranks see alike may decide: buffers have no say.
std::shared_ptr<const Plan> GroupBody::choose(const CollectiveCall& call, Transport& transport,
                                              std::string_view named) {
  // What a continuation starts, ranks come to at different places among their calls: it goes where
  // ranks need not come in one order.
  const bool in_order = Branch::current() == nullptr;
  PEAL_CHECK(
      in_order || !transport.stream_ordered(), "[comm] ", lane->who(), ", ", name(call.what),
      ": started by then() of work on the CPU, for tensors in a device's queue, which must be "
      "fed in one order on all ranks; wait for that work first");
  if (!named.empty()) return choose_anew(call, transport, named, in_order);
  const DeviceType where = transport.device().type;
  {
    const std::lock_guard lock(planning_);
    const LastChoice& last = last_choice_;
    if (last.plan && last.what == call.what && last.dtype == call.dtype() && last.op == call.op &&
        last.root == call.root && last.where == where && last.in_order == in_order &&
        last.counts == call.counts) {
      return last.plan;
    }
  }
  auto plan = choose_anew(call, transport, named, in_order);
  const std::lock_guard lock(planning_);
  last_choice_ = {call.what, call.dtype(), call.op, call.root, where, in_order, call.counts, plan};
  return plan;
}

std::shared_ptr<const Plan> GroupBody::choose_anew(const CollectiveCall& call, Transport& transport,
                                                   std::string_view named, bool in_order) {
  const Choice choice = choose_algorithm(call, transport, named, in_order);
  return choice.algorithm == "native" ? nullptr : plan_for(call, choice);
}

Choice GroupBody::choose_algorithm(const CollectiveCall& call, Transport& transport,
                                   std::string_view named, bool in_order) {
  const DeviceType where = transport.device().type;
  const auto element = static_cast<std::int64_t>(size_of(call.dtype()));
  const std::int64_t bytes = call.bytes(world);
  const Window* const window = in_order && where == DeviceType::cpu ? lane->window() : nullptr;
  const bool shared = window != nullptr && window->joins_all() && !scales_widened(call);
  // A library's own sums are made as it likes.
  const bool sums_as_wanted = !options.deterministic || !call.reduces() ||
                              (transport.native() != nullptr && transport.native()->sums_by_rank());
  const bool native = in_order && sums_as_wanted && transport.has_native(native_call(call, where));
  Choice choice;
  if (named.empty()) {
    choice = selection.choose(call.what, bytes, {shared, native, where != DeviceType::cpu});
    // Who names an algorithm in a call means that one, and who names it for all, its best form.
    const Entry* const entry = find(call.what, choice.algorithm);
    if (window != nullptr && entry != nullptr && !entry->in_memory.empty()) {
      choice.algorithm = entry->in_memory;
    }
  } else {
    const NamedAlgorithm wanted = parse_algorithm(call.what, named, "run");
    selection.check_admitted(call.what, wanted.name, "run");
    choice = {wanted.name, wanted.chunk, true, "named in the call"};
    PEAL_CHECK(native || wanted.name != "native", "[comm] ", name(call.what), ": the transport ",
               transport.name(), " has none of its own for these arguments");
  }
  // Of ragged counts, or of more ranks than were measured, the rooms may not hold what the sum of
  // the counts suggests.
  if (choice.algorithm == "slots" && !choice.asked_for && !call.counts.empty()) {
    const std::int64_t parts = call.counts.size() > 1 ? world : 1;
    const std::int64_t most = std::ranges::max(call.counts) * parts * element;
    if (most > static_cast<std::int64_t>(Window::room_bytes)) {
      choice = {"direct_slices", 0, false, "for slots the rooms are too small"};
    }
  }
  if (options.tells_choices && rank == 0) {
    told_.tell(lane->who(), {call.what, bytes, call.dtype(), world, shared}, choice);
  }
  return choice;
}

}  // namespace peal::comm
