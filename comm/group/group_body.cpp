// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/told_here.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/recorder.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace peal::comm {

GroupBody::GroupBody(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
                     std::shared_ptr<Engine> shared, const ProcessGroup::Options& wanted,
                     Topology where, std::vector<int> ranks, std::uint64_t id)
    : options(wanted),
      members(std::move(ranks)),
      rank(transport->rank()),
      world(transport->world()),
      engine(std::move(shared)),
      nodes(std::move(where)),
      unwinding_(std::uncaught_exceptions()) {
  PEAL_CHECK(wanted.deadline.count() >= 1, "[comm] rank ", rank, " of ", world,
             ": expected a deadline of 1 ms at least, got ", wanted.deadline.count(), " ms");
  const bool whole_world = members.empty();
  // Of several worlds in a process the first one has the files; of the others, and of the groups
  // within them, nothing is recorded.
  const std::shared_ptr<Recorder>& recorder = engine->recorder();
  if (whole_world && recorder) options.trace.clear();
  for (int r = 0; whole_world && r < world; ++r) members.push_back(r);
  std::string who = concat("rank ", members[static_cast<std::size_t>(rank)]);
  if (!whole_world) who += concat(" (", rank, " of ", world, " in its group)");
  lane = std::make_shared<Lane>(engine, std::move(transport), std::move(control), options.deadline,
                                std::move(who), id);
  if (recorder && !options.trace.empty()) {
    recorder->add_group(id, members);
    lane->set_recorder(recorder);
  }
  std::string listed;
  for (const int member : members) listed += concat(listed.empty() ? "" : ", ", member);
  lane->set_group_name(whole_world ? "the world" : concat("the group of ranks ", listed));
  lane->set_stall_warning(options.stall_warning);
  lane->transport().set_hopeless([control = &lane->control()] { control->check(); });
  if (nodes.node.empty()) nodes = single_node(world);
  PEAL_CHECK(nodes.node.size() == static_cast<std::size_t>(world), "[comm] ", lane->who(),
             ": nodes of ", nodes.node.size(), " ranks for a world of ", world);
  if (std::ranges::any_of(nodes.node, [&](int node) { return node != nodes.node[0]; })) {
    lane->set_several_nodes();
  }
  engine->add(lane);
  if (whole_world) told_warnings_ = lane->control().told_warnings();
  if (told_warnings_) share_told_warnings(told_warnings_);
}

// What devices have in their queues ends first, unless somebody has failed: then nobody waits.
GroupBody::~GroupBody() {
  if (inherited()) {  // a child says nothing to anybody, and ends nothing that is not its own
    static_cast<void>(new std::shared_ptr<Lane>(std::move(lane)));
    static_cast<void>(new std::shared_ptr<Engine>(std::move(engine)));
    return;
  }
  if (told_warnings_) part_told_warnings(told_warnings_);
  if (traces) {
    try {
      note_ops(*this, *engine->recorder());
      engine->write(*engine->recorder());
    } catch (const Error& error) {
      log_error(error.what());
    }
    engine->set_recorder(nullptr);
  }
  const int before = std::this_thread::get_id() == maker_ ? unwinding_ : 0;
  bool failed = lane->control().poisoned().has_value() || std::uncaught_exceptions() > before;
  if (!failed) {
    try {  // the last chance to see it
      lane->compare_finished(sequence());
    } catch (const Error& error) {
      log_error(error.what());
      engine->poison(*lane, error.what());
      failed = true;
    }
  }
  write_flight_of_failure();
  engine->remove(lane, failed);
  drop_graphs();
}

void GroupBody::fail_inherited() const {
  fail(concat("[comm] ", lane->who(),
              ": a child by fork has no group, for its connections are its parent's; call "
              "collectives in the parent, or start the child as a program of its own"));
}

void GroupBody::tell_end_of(Transport& transport, const Error& error) {
  if (transport.queue() == nullptr) return;
  try {
    transport.queue()->check();
  } catch (const Error&) {
    engine->poison(*lane, concat("[comm] ", lane->who(), ": ", error.what()));
  }
}

void GroupBody::drop_graphs() {
  for (const auto& each : captured_) {
    if (const auto graph = each.lock()) graph->drop();
  }
}

Transport& GroupBody::moves(Device device) const {
  Transport* const attached = lane->device_transport();
  return attached != nullptr && attached->device() == device ? *attached : lane->transport();
}

Transport& GroupBody::route(const CollectiveCall& call) const {
  Transport* found = nullptr;
  const auto look = [&](const View& view) {
    if (!view.storage) return;
    Transport& of_this = moves(view.device());
    found = found == nullptr || found == &of_this ? &of_this : &lane->transport();
  };
  look(call.in);
  look(call.out);
  for (const Piece& piece : call.gathered) look(piece.data);
  for (const Piece& piece : call.scattered) look(piece.data);
  return found == nullptr ? lane->transport() : *found;
}

// A replay has no part for the host.
bool GroupBody::captures(Transport& transport) const {
  const Graph* const graph = Graph::capturing();
  return graph == nullptr || (transport.queue() != nullptr && transport.queue()->capturable() &&
                              transport.device() == graph->device());
}

void GroupBody::refuse_capture(const std::string& call, Transport& transport) const {
  fail(concat("[comm] ", lane->who(), ", ", call,
              ": it cannot be captured in a graph, for it goes over ", transport.name(),
              ", which takes no part in a replay; attach NCCL (use_nccl) for tensors on ",
              Graph::capturing()->device(), ", or leave the collective outside the graph"));
}

CapturedOperations& GroupBody::captured_by(Graph& graph) {
  std::erase_if(captured_, [](const auto& each) { return each.expired(); });
  if (!captured_.empty()) {
    const auto last = captured_.back().lock();
    if (last->takes_more()) return *last;
  }
  const auto made = CapturedOperations::create(graph, lane);
  captured_.push_back(made);
  return *made;
}

}  // namespace peal::comm
