// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::string_view wire_version = "peal 1";  // ranks of other versions are turned away

}  // namespace

ProcessGroup::Options ProcessGroup::Options::from_environment() {
  Options options;
  if (const char* algorithms = std::getenv("PEAL_ALGO")) options.algorithms = algorithms;
  if (const char* folder = std::getenv("PEAL_TRACE")) options.trace = folder;
  if (const char* timeout = std::getenv("PEAL_TIMEOUT")) {
    char* end = nullptr;
    const double seconds = std::strtod(timeout, &end);
    PEAL_CHECK(end != timeout && *end == 0 && seconds >= 1e-3 && seconds < 1e9,
               "PEAL_TIMEOUT: expected a number of seconds, 0.001 at least, got '", timeout, "'");
    options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  }
  return options;
}

ProcessGroup::ProcessGroup(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
                           std::shared_ptr<Engine> engine, const Options& options, Topology nodes)
    : ProcessGroup(std::move(transport), std::move(control), std::move(engine), options,
                   std::move(nodes), {}, 0) {}

ProcessGroup::ProcessGroup(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
                           std::shared_ptr<Engine> engine, const Options& options, Topology nodes,
                           std::vector<int> members, std::uint64_t id)
    : options_(options),
      members_(std::move(members)),
      engine_(std::move(engine)),
      nodes_(std::move(nodes)),
      unwinding_(std::uncaught_exceptions()) {
  const int ranks = transport->world(), me = transport->rank();
  const bool whole_world = members_.empty();
  // Of several worlds in a process the first one has the files; of the others, and of the groups
  // within them, nothing is recorded.
  if (whole_world && engine_->recorder()) options_.trace.clear();
  for (int r = 0; whole_world && r < ranks; ++r) members_.push_back(r);
  std::string who = concat("rank ", members_[static_cast<std::size_t>(me)]);
  if (!whole_world) who += concat(" (", me, " of ", ranks, " in its group)");
  lane_ = std::make_shared<Lane>(engine_, std::move(transport), std::move(control),
                                 options.deadline, std::move(who), id);
  if (const auto& recorder = engine_->recorder(); recorder && !options_.trace.empty()) {
    recorder->add_group(id, members_);
    lane_->set_recorder(recorder);
  }
  lane_->transport().set_hopeless([control = &lane_->control()] { control->check(); });
  if (nodes_.node.empty()) nodes_ = single_node(ranks);
  PEAL_CHECK(nodes_.node.size() == static_cast<std::size_t>(ranks), "[comm] ", lane_->who(),
             ": nodes of ", nodes_.node.size(), " ranks for a world of ", ranks);
  try {
    agree_on_options();
    if (whole_world && !options_.trace.empty()) start_trace();
  } catch (...) {  // no destructor follows
    engine_->remove(lane_, poisoned());
    throw;
  }
}

// The agreement itself runs on the defaults, which do not depend on the options.
void ProcessGroup::agree_on_options() {
  const std::string mine =
      concat(wire_version, ", world ", world(), ", PEAL_TIMEOUT ", options_.deadline.count(),
             " ms, PEAL_ALGO '", options_.algorithms, "', PEAL_TRACE '", options_.trace, "'");
  agree(*this, concat("[comm] ", lane_->who(), ": what ranks must have in common at start-up"),
        mine, "start them from one binary with one environment");
  selection_ = Selection(options_.algorithms);
}

// What devices have in their queues ends first, unless somebody has failed: then nobody waits.
ProcessGroup::~ProcessGroup() {
  if (traces_) {
    try {
      engine_->recorder()->write();
    } catch (const Error& error) {
      log_error(error.what());
    }
    engine_->set_recorder(nullptr);
  }
  const bool failed = poisoned() || std::uncaught_exceptions() > unwinding_;
  if (!failed) {
    try {  // the last chance to see it
      lane_->compare_finished();
    } catch (const Error& error) {
      log_error(error.what());
      poison(error.what());
    }
  }
  engine_->remove(lane_, failed);
  drop_graphs();
}

void ProcessGroup::drop_graphs() {
  for (const auto& each : captured_) {
    if (const auto graph = each.lock()) graph->drop();
  }
}

std::shared_ptr<ProcessGroup> ProcessGroup::alone() {
  auto transport = std::make_unique<ThreadsTransport>(std::make_shared<Switchboard>(1), 0);
  auto control =
      std::make_unique<Control>(Board::in_memory(1), 0, std::vector<int>{0}, std::vector<Peer>{});
  Options options = Options::from_environment();
  if (Recorder::writes_to(options.trace)) options.trace.clear();  // within a traced world
  return std::make_shared<ProcessGroup>(std::move(transport), std::move(control),
                                        std::make_shared<Engine>(false), options);
}

std::shared_ptr<const Plan> ProcessGroup::plan_for(const CollectiveCall& call,
                                                   std::string_view algorithm) {
  constexpr std::size_t most_plans = 512;  // ragged counts could otherwise fill the memory
  const Entry* entry = find(call.what, algorithm);
  PEAL_CHECK(entry != nullptr && entry->supports(world()), "[comm] ", name(call.what),
             ": the algorithm ", algorithm, " does not serve ", world(), " ranks");
  if (last_plan_.entry == entry && last_plan_.root == call.root &&
      last_plan_.counts == call.counts) {
    return last_plan_.plan;
  }
  if (plans_.size() >= most_plans) plans_.clear();
  auto& plan = plans_[PlanKey(call.what, entry->name, call.root, call.counts)];
  if (!plan) {
    const Problem problem{.what = call.what,
                          .rank = rank(),
                          .world = world(),
                          .root = call.root,
                          .counts = call.counts,
                          .nodes = nodes_};
    try {
      plan = std::make_shared<const Plan>(comm::plan(*entry, problem), std::string(entry->name));
    } catch (const std::invalid_argument& error) {
      fail(concat("[comm] rank ", rank(), ": ", error.what()));
    }
  }
  last_plan_ = {entry, call.root, call.counts, plan};
  return plan;
}

Transport& ProcessGroup::moves(Device device) const {
  Transport* const attached = lane_->device_transport();
  return attached != nullptr && attached->device() == device ? *attached : lane_->transport();
}

// The device's, if everything lies there.
Transport& ProcessGroup::route(const CollectiveCall& call) const {
  Transport* found = nullptr;
  const auto look = [&](const View& view) {
    if (!view.storage) return;
    Transport& of_this = moves(view.device());
    found = found == nullptr || found == &of_this ? &of_this : &lane_->transport();
  };
  look(call.in);
  look(call.out);
  for (const Piece& piece : call.gathered) look(piece.data);
  for (const Piece& piece : call.scattered) look(piece.data);
  return found == nullptr ? lane_->transport() : *found;
}

// Ranks that take different transports disagree, and never meet.
Channel ProcessGroup::next_channel(const CollectiveCall& call, Transport& transport) {
  transport.check_thread();  // before the number is taken, for ranks count alike
  const std::uint64_t stream_ordered = transport.device().type == DeviceType::cpu ? 0 : 1;
  return lane_->next_channel(signature(call) ^ stream_ordered);
}

void ProcessGroup::attach(std::unique_ptr<Transport> transport) {
  PEAL_CHECK(transport != nullptr && transport->world() == world() && transport->rank() == rank() &&
                 transport->device().type != DeviceType::cpu,
             "attach: expected a transport of a device, for rank ", rank(), " of ", world());
  transport->set_hopeless([control = &lane_->control()] { control->check(); });
  drop_graphs();  // they have the kernels of the transport before
  engine_->attach(lane_, std::move(transport));
}

void ProcessGroup::check_overlap(const CollectiveCall& call) const {
  if (call.in.count == 0 || call.out.count == 0) return;
  const std::byte *const in = call.in.data(), *const out = call.out.data();
  if (in >= out + call.out.bytes() || out >= in + call.in.bytes()) return;
  const std::size_t size = size_of(call.dtype());
  std::ptrdiff_t wanted = 0;
  if (call.what != Collective::all_to_all) {
    const Problem problem{.what = call.what,
                          .rank = rank(),
                          .world = world(),
                          .root = call.root,
                          .counts = call.counts,
                          .nodes = nodes_};
    wanted = in_place_offset(problem) * static_cast<std::ptrdiff_t>(size);
    if (in - out == wanted) return;
  }
  fail(concat("[comm] ", lane_->who(), ", ", describe(call, sequence(), {}),
              ": in and out overlap; ",
              call.what == Collective::all_to_all
                  ? std::string("they must be apart")
                  : concat("in place, in begins ", wanted / static_cast<std::ptrdiff_t>(size),
                           " elements after out, here ", in - out, " bytes after it")));
}

Work ProcessGroup::start(CollectiveCall call, const Label& label) {
  call.purpose = label.tag;
  if (call.reduces()) check_reduction(call.dtype(), call.op);
  PEAL_CHECK(call.root >= 0 && call.root < world(), "[comm] rank ", rank(), ", ", name(call.what),
             ": root ", call.root, " of a world of ", world());
  check_overlap(call);
  const bool nothing_to_do = world() == 1 && call.in.data() == call.out.data() &&
                             call.gathered.empty() && call.op != ReduceOp::premul_sum;
  Transport& transport = route(call);
  const DeviceType where = transport.device().type;
  if (!nothing_to_do && !captures(transport)) {
    refuse_capture(describe(call, sequence(), label.text), transport);
  }
  const Channel channel = next_channel(call, transport);
  if (nothing_to_do) return {};
  // Of a rank, from the counts, which all ranks share; a rank's own buffers may have another size.
  const std::int64_t rows = call.what == Collective::all_to_all ? world() : 1;
  const std::int64_t bytes =
      std::accumulate(call.counts.begin(), call.counts.end(), std::int64_t{0}) / rows *
      static_cast<std::int64_t>(size_of(call.dtype()));
  // On a device its library's own are the default: they see the links.
  std::string_view algorithm = where == DeviceType::cpu || selection_.names(call.what, bytes)
                                   ? selection_.choose(call.what, bytes, world())
                                   : "native";
  // Only what all ranks see alike may decide here; whether a buffer is in place is part of the
  // call.
  // A library matches its own by their order alone, in which ranks come to what then() starts.
  const bool in_order = Branch::current() == nullptr;
  PEAL_CHECK(
      in_order || where == DeviceType::cpu, "[comm] ", lane_->who(), ", ", name(call.what),
      ": started by then() of work on the CPU, for tensors in a device's queue, which must be "
      "fed in one order on all ranks; wait for that work first");
  if (algorithm == "native" && !(in_order && transport.has_native(native_call(call, where)))) {
    algorithm = Selection().choose(call.what, bytes, world());
  }
  auto plan = algorithm == "native" ? nullptr : plan_for(call, algorithm);
  return submit(std::move(call), std::move(plan), transport, channel, label.text);
}

Work ProcessGroup::submit(Call call, std::shared_ptr<const Plan> plan, Transport& transport,
                          Channel channel, std::string_view label) {
  auto operation = std::make_shared<Operation>(lane_, std::move(call), std::move(plan), transport,
                                               channel, options_.segment, label);
  if (Graph* const graph = Graph::capturing()) {
    captured_by(*graph).add(operation);
  } else {
    engine_->submit(operation);
  }
  return Work(std::move(operation));
}

// A replay has no part for the host.
bool ProcessGroup::captures(Transport& transport) const {
  const Graph* const graph = Graph::capturing();
  return graph == nullptr || (transport.queue() != nullptr && transport.queue()->capturable() &&
                              transport.device() == graph->device());
}

void ProcessGroup::refuse_capture(const std::string& call, Transport& transport) const {
  fail(concat("[comm] ", lane_->who(), ", ", call,
              ": it cannot be captured in a graph, for it goes over ", transport.name(),
              ", which takes no part in a replay; attach NCCL (use_nccl) for tensors on ",
              Graph::capturing()->device(), ", or leave the collective outside the graph"));
}

CapturedOperations& ProcessGroup::captured_by(Graph& graph) {
  std::erase_if(captured_, [](const auto& each) { return each.expired(); });
  if (!captured_.empty()) {
    const auto last = captured_.back().lock();
    if (last->takes_more()) return *last;
  }
  const auto made = CapturedOperations::create(graph, lane_);
  captured_.push_back(made);
  return *made;
}

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype, Device device) {
  check();  // a transport that was abandoned would not know why
  Transport& transport = moves(device);
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const bool knows = transport.memory() != nullptr && transport.device() == device;
  StorageRef known = knows ? transport.memory()->allocate(bytes) : nullptr;
  if (!known) return Tensor::zeros(shape, dtype, device);
  auto body = std::make_shared<TensorBody>();
  body->storage = std::move(known);
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

}  // namespace peal::comm
