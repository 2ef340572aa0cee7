// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <set>
#include <stdexcept>
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
  lane->transport().set_hopeless([control = &lane->control()] { control->check(); });
  if (nodes.node.empty()) nodes = single_node(world);
  PEAL_CHECK(nodes.node.size() == static_cast<std::size_t>(world), "[comm] ", lane->who(),
             ": nodes of ", nodes.node.size(), " ranks for a world of ", world);
  if (std::ranges::any_of(nodes.node, [&](int node) { return node != nodes.node[0]; })) {
    lane->set_several_nodes();
  }
  engine->add(lane);
}

// What devices have in their queues ends first, unless somebody has failed: then nobody waits.
GroupBody::~GroupBody() {
  if (inherited()) {  // a child says nothing to anybody, and ends nothing that is not its own
    static_cast<void>(new std::shared_ptr<Lane>(std::move(lane)));
    static_cast<void>(new std::shared_ptr<Engine>(std::move(engine)));
    return;
  }
  if (traces) {
    try {
      engine->write(*engine->recorder());
    } catch (const Error& error) {
      log_error(error.what());
    }
    engine->set_recorder(nullptr);
  }
  const int before = std::this_thread::get_id() == maker_ ? unwinding_ : 0;
  const bool failed = lane->control().poisoned().has_value() || std::uncaught_exceptions() > before;
  if (!failed) {
    try {  // the last chance to see it
      lane->compare_finished(sequence());
    } catch (const Error& error) {
      log_error(error.what());
      lane->control().poison(error.what());
    }
  }
  engine->remove(lane, failed);
  drop_graphs();
}

void GroupBody::fail_inherited() const {
  fail(concat("[comm] ", lane->who(),
              ": a child by fork has no group, for its connections are its parent's; call "
              "collectives in the parent, or start the child as a program of its own"));
}

void GroupBody::drop_graphs() {
  for (const auto& each : captured_) {
    if (const auto graph = each.lock()) graph->drop();
  }
}

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

// Ranks whose tensors go differently, one over a device's transport and another through the host,
// disagree, and never meet.
Channel GroupBody::next_channel(const CollectiveCall& call, Transport& transport,
                                std::uint64_t* window_turn) {
  refuse_inherited();
  transport.check_thread();  // before the number is taken, for ranks count alike
  const std::uint64_t on_device = transport.device().type == DeviceType::cpu ? 0 : 1;
  return engine->next_channel(*lane, signature(call) ^ on_device, window_turn);
}

void GroupBody::check_window(const Plan& plan, Transport& transport, std::string_view what) const {
  if (!plan.one_sided) return;
  const auto who = [&] { return concat("[comm] ", lane->who(), ", ", what, ": ", plan.name); };
  const Window* const window = lane->window();
  PEAL_CHECK(window != nullptr, who(), " needs memory that the ranks share");
  for (const int other : plan.sharers) {
    PEAL_CHECK(window->joins(other), who(), " needs memory in common with rank ", other,
               ", which is on another node");
  }
  PEAL_CHECK(transport.device().type == DeviceType::cpu, who(), " is for tensors on the CPU");
  PEAL_CHECK(Branch::current() == nullptr, who(),
             " cannot be started by then(): the group's shared memory serves operations in the "
             "order of the calls");
}

void GroupBody::check_overlap(const CollectiveCall& call) const {
  if (call.in.count == 0 || call.out.count == 0) return;
  const std::byte *const in = call.in.data(), *const out = call.out.data();
  if (in >= out + call.out.bytes() || out >= in + call.in.bytes()) return;
  const std::size_t size = size_of(call.dtype());
  std::ptrdiff_t wanted = 0;
  if (has_in_place(call.what)) {
    wanted = in_place_offset(problem_of(call)) * static_cast<std::ptrdiff_t>(size);
    if (in - out == wanted) return;
  }
  fail(concat("[comm] ", lane->who(), ", ", describe(call, sequence(), {}),
              ": in and out overlap; ",
              has_in_place(call.what)
                  ? concat("in place, in begins ", wanted / static_cast<std::ptrdiff_t>(size),
                           " elements after out, here ", in - out, " bytes after it")
                  : std::string("they must be apart")));
}

Work GroupBody::start(CollectiveCall call, const Label& label, std::string_view named) {
  call.purpose = label.tag;
  for (const char letter : named) mix(call.purpose, static_cast<unsigned char>(letter));
  if (call.reduces()) check_reduction(call.dtype(), call.op);
  PEAL_CHECK(call.root >= 0 && call.root < world, "[comm] ", lane->who(), ", ", name(call.what),
             ": expected a root among the ranks of the group, 0 to ", world - 1, ", got ",
             call.root);
  check_overlap(call);
  const bool nothing_to_do = world == 1 && call.in.data() == call.out.data() &&
                             call.gathered.empty() && call.op != ReduceOp::premul_sum;
  Transport& transport = route(call);
  if (!nothing_to_do && !captures(transport)) {
    refuse_capture(describe(call, sequence(), label.text), transport);
  }
  if (nothing_to_do) {
    next_channel(call, transport);
    return {};
  }
  refuse_inherited();
  auto plan = choose(call, transport, named);
  if (plan && plan->one_sided) {
    check_window(*plan, transport, name(call.what));
    return start_in_window(std::move(call), std::move(plan), label.text, named.empty());
  }
  const Channel channel = next_channel(call, transport);
  return submit(std::move(call), std::move(plan), transport, channel, label.text);
}

Work GroupBody::all_reduce(const View& out, const View& in, ReduceOp op, const Label& label) {
  // Only what was begun like this before is known.
  Exchange exchange;
  const bool here = in.device().type == DeviceType::cpu && out.device().type == DeviceType::cpu;
  if (lane->window() != nullptr && in.count > 0 && here && may_be_immediate()) {
    const std::byte* const from = in.data();
    std::byte* const to = out.data();
    const std::size_t bytes = in.bytes();
    if (from == to || from >= to + bytes || to >= from + bytes) {
      exchange =
          engine->exchange_known(*lane, {in.dtype, op, in.count, label.tag}, from, to, bytes);
    }
  }
  if (exchange.state == Exchange::State::over) {
    out.storage->bump_version();
    return Work(lane->serial(), exchange.algorithm);
  }
  CollectiveCall call{
      .what = Collective::all_reduce, .in = in, .out = out, .op = op, .counts = {in.count}};
  if (exchange.state == Exchange::State::refused) return start(std::move(call), label);
  call.purpose = label.tag;
  return go_on(std::move(call), exchange, label.text);
}

// What only this rank knows may refuse it, for the others see no difference: all run one program.
bool GroupBody::may_be_immediate() const {
  return Branch::current() == nullptr && Graph::capturing() == nullptr && !inherited();
}

Work GroupBody::start_in_window(CollectiveCall call, std::shared_ptr<const Plan> plan,
                                std::string_view label, bool may_be_known) {
  Exchange exchange;
  if (may_be_immediate() && can_be_immediate(call, *plan)) {
    Immediate immediate(call, plan);
    exchange =
        engine->exchange(*lane, immediate, call.in.data(), call.out.data(), call.out.bytes());
    const bool all_reduce = call.what == Collective::all_reduce;
    if (all_reduce && may_be_known) engine->know(*lane, call, std::move(immediate));
  }
  if (exchange.state == Exchange::State::refused) {
    std::uint64_t turn = 0;
    const Channel channel = next_channel(call, lane->transport(), &turn);
    return submit(std::move(call), std::move(plan), lane->transport(), channel, label, turn);
  }
  if (exchange.state == Exchange::State::begun) return go_on(std::move(call), exchange, label);
  if (call.out.storage) {
    const bool sent = call.what == Collective::broadcast && rank == call.root;
    if (sent && call.in.data() == call.out.data()) {
      call.out.storage->count_broadcast();
    } else {
      call.out.storage->bump_version();
    }
  }
  return Work(lane->serial(), exchange.algorithm);
}

// The others have heard of it.
Work GroupBody::go_on(CollectiveCall call, const Exchange& exchange, std::string_view label) {
  const std::uint64_t number = exchange.channel.sequence;
  try {
    return submit(std::move(call), exchange.whole, lane->transport(), exchange.channel, label,
                  exchange.window_turn, exchange);
  } catch (const std::exception& error) {
    lane->control().poison(concat("[comm] ", lane->who(), ", number ", number, ": ", error.what()));
    throw;
  }
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
  // Of a rank, from the counts, which all ranks share; a rank's own buffers may have another size.
  const std::int64_t rows = call.what == Collective::all_to_all ? world : 1;
  const auto element = static_cast<std::int64_t>(size_of(call.dtype()));
  const std::int64_t bytes =
      std::accumulate(call.counts.begin(), call.counts.end(), std::int64_t{0}) / rows * element;
  const Window* const window = in_order && where == DeviceType::cpu ? lane->window() : nullptr;
  const bool shared = window != nullptr && window->joins_all() && !scales_widened(call);
  const bool native = in_order && transport.has_native(native_call(call, where));
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

Work GroupBody::submit(Call call, std::shared_ptr<const Plan> plan, Transport& transport,
                       Channel channel, std::string_view label, std::uint64_t window_turn,
                       const Exchange& begun) {
  refuse_inherited();
  auto operation = std::make_shared<Operation>(lane, std::move(call), std::move(plan), transport,
                                               channel, options.segment, label);
  operation->window_turn = window_turn;
  operation->execution.go_on_from(begun);
  if (Graph* const graph = Graph::capturing()) {
    captured_by(*graph).add(operation);
  } else {
    engine->submit(operation);
  }
  return Work(std::move(operation));
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
