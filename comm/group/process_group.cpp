// SPDX-License-Identifier: Apache-2.0
// The handle: how groups are made, and what they are asked.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/group/tuning.h>
#include <peal/comm/group/wire_version.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

// Larger for a world that begins later; below a millisecond by chance, and not as large as may be.
std::uint64_t new_run() {
  constexpr std::uint64_t below = (1 << 20) - 1;
  std::random_device random;
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  return (static_cast<std::uint64_t>(now.count()) & ~below) | (random() & below);
}

// The agreement itself runs on the defaults, which do not depend on the options. A world's rank 0
// tells the others what it has found.
void agree_on_options(const ProcessGroup& group, bool whole_world) {
  GroupBody& body = body_of(group);
  const ProcessGroup::Options& options = body.options;
  const std::string mine =
      concat(wire_version(), ", world ", body.world, ", PEAL_TIMEOUT ", options.deadline.count(),
             " ms, PEAL_ALGO '", options.algorithms, "', PEAL_TRACE '", options.trace,
             "', PEAL_SHARED_MEMORY ", options.shared_memory ? 1 : 0, ", PEAL_DETERMINISTIC ",
             options.deterministic ? 1 : 0);
  const bool tells = whole_world && body.world > 1 && body.rank == 0;
  const std::string told = tells ? read_tuning(options.tuning) : std::string();
  std::uint64_t word = whole_world && body.rank == 0 ? new_run() << 1 : 0;
  word |= body.engine->crowded() ? 1 : 0;
  std::string heard = agree(
      group, concat("[comm] ", body.lane->who(), ": what ranks must have in common at start-up"),
      mine, "start them from one binary with one environment", told, &word);
  if (whole_world) {
    body.found = {.tuning = std::move(heard), .crowded = (word & 1) != 0, .run = word >> 1};
  }
  const auto& node = body.nodes.node;
  const int nodes = static_cast<int>(std::set(node.begin(), node.end()).size());
  body.selection = Selection(options.algorithms, body.world, nodes,
                             measured_for(body.found.tuning, body.lane->transport().name(),
                                          body.world, nodes, body.found.crowded),
                             body.found.crowded, options.deterministic);
}

// Ranks of one node give themselves a window; where there is no memory for it on any, messages do.
void share_memory(const ProcessGroup& group) {
  GroupBody& body = body_of(group);
  const auto& nodes = body.nodes.node;
  if (!body.options.shared_memory || std::set(nodes.begin(), nodes.end()).size() == nodes.size() ||
      body.lane->transport().device().type != DeviceType::cpu) {
    return;
  }
  std::vector<int> here;
  for (int r = 0; r < body.world; ++r) {
    if (nodes[static_cast<std::size_t>(r)] == nodes[static_cast<std::size_t>(body.rank)]) {
      here.push_back(r);
    }
  }
  GroupRendezvous ranks(group);
  try {
    auto window = Window::create(ranks, std::move(here));
    if (body.engine->crowded()) window->give_way();
    body.lane->set_window(std::move(window));
  } catch (const NoSharedMemory& error) {
    if (body.rank == 0) log_warning(error.what(), "; going on with messages, which are slower");
  }
}

// What a variable says of a switch, or where it is not set, `otherwise`.
bool switched(std::string_view variable, const char* said, bool otherwise) {
  if (said == nullptr) return otherwise;
  const std::string_view text = said;
  PEAL_CHECK(text == "0" || text == "1", variable, ": expected 0 or 1, got '", text, "'");
  return text == "1";
}

}  // namespace

ProcessGroup::Options ProcessGroup::Options::from_environment() {
  Options options;
  if (const char* algorithms = std::getenv("PEAL_ALGO")) options.algorithms = algorithms;
  if (const char* folder = std::getenv("PEAL_TRACE")) options.trace = folder;
  if (const char* folder = std::getenv("PEAL_FLIGHT")) options.flight = folder;
  options.shared_memory =
      switched("PEAL_SHARED_MEMORY", std::getenv("PEAL_SHARED_MEMORY"), options.shared_memory);
  options.deterministic =
      switched("PEAL_DETERMINISTIC", std::getenv("PEAL_DETERMINISTIC"), options.deterministic);
  const TuningPath tuning = tuning_path();
  std::error_code none;  // where the user may not look there is no file
  if (tuning.by_user || std::filesystem::exists(tuning.path, none)) options.tuning = tuning.path;
  if (const char* topics = std::getenv("PEAL_DEBUG")) {
    const std::string_view said = topics;
    PEAL_CHECK(said == "algo" || said.empty(), "PEAL_DEBUG: expected algo, got '", said, "'");
    options.tells_choices = said == "algo";
  }
  if (const char* timeout = std::getenv("PEAL_TIMEOUT")) {
    char* end = nullptr;
    const double seconds = std::strtod(timeout, &end);
    PEAL_CHECK(end != timeout && *end == 0 && seconds >= 1e-3 && seconds < 1e9,
               "PEAL_TIMEOUT: expected a number of seconds, 0.001 at least, got '", timeout, "'");
    options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  }
  return options;
}

ProcessGroup make_group(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
                        std::shared_ptr<Engine> engine, const ProcessGroup::Options& options,
                        Topology nodes, std::vector<int> members, std::uint64_t id,
                        const Found& found) {
  const bool whole_world = members.empty();
  if (whole_world) control->reach_far(*transport, options.deadline);
  ProcessGroup group = group_of(
      std::make_shared<GroupBody>(std::move(transport), std::move(control), std::move(engine),
                                  options, std::move(nodes), std::move(members), id));
  body_of(group).found = found;
  agree_on_options(group, whole_world);
  share_memory(group);
  if (whole_world && !body_of(group).options.trace.empty()) start_trace(group);
  return group;
}

GroupBody& body_of(const ProcessGroup& group) { return group.body(); }

ProcessGroup group_of(std::shared_ptr<GroupBody> body) {
  ProcessGroup group;
  group.body_ = std::move(body);
  return group;
}

void ProcessGroup::fail_without_group() {
  fail(
      "[comm] a call on a process group that is none: this rank is no member of the group, and "
      "new_group() or split() gave it an empty one; ask with `if (group)` first");
}

int ProcessGroup::rank() const { return body().rank; }
int ProcessGroup::world() const { return body().world; }
int ProcessGroup::global_rank(int rank) const {
  PEAL_CHECK(rank >= 0 && rank < world(), "[comm] ", body().lane->who(),
             ", global_rank: expected a rank of the group, 0 to ", world() - 1, ", got ", rank);
  return body().members[static_cast<std::size_t>(rank)];
}
int ProcessGroup::group_rank(int global_rank) const {
  const auto& members = body().members;
  const auto found = std::ranges::find(members, global_rank);
  PEAL_CHECK(found != members.end(), "[comm] ", body().lane->who(), ", group_rank: rank ",
             global_rank, " of the world is not in the group");
  return static_cast<int>(found - members.begin());
}
std::string_view ProcessGroup::transport() const { return body().lane->transport().name(); }
std::string_view ProcessGroup::transport(Device device) const {
  return body().moves(device).name();
}
const Topology& ProcessGroup::nodes() const { return body().nodes; }

bool ProcessGroup::crowded() const { return body().found.crowded; }

void ProcessGroup::progress() const {
  body().refuse_inherited();
  body().engine->progress();
}
void ProcessGroup::poison(const std::string& message) const {
  if (!body().inherited()) body().engine->poison(*body().lane, message);
}
void ProcessGroup::abort(const std::string& message) const {
  if (!body().inherited()) body().engine->abort(body().lane, message);
}
std::shared_ptr<void> ProcessGroup::busy(std::string_view what) const {
  body().refuse_inherited();
  return std::make_shared<Busy>(body().lane->control().busy(what));
}
void ProcessGroup::check() const {
  body().refuse_inherited();
  body().lane->control().check();
}
bool ProcessGroup::poisoned() const { return body().lane->control().poisoned().has_value(); }
std::uint64_t ProcessGroup::sequence() const { return body().sequence(); }

OperationCounters ProcessGroup::counters() const {
  body().refuse_inherited();
  return body().engine->counters(*body().lane);
}

void ProcessGroup::attach(std::unique_ptr<Transport> transport) const {
  GroupBody& group = body();
  PEAL_CHECK(transport != nullptr && transport->world() == world() && transport->rank() == rank() &&
                 transport->device().type != DeviceType::cpu,
             "attach: expected a transport of a device, for rank ", rank(), " of ", world());
  transport->set_hopeless([control = &group.lane->control()] { control->check(); });
  group.drop_graphs();  // they have the kernels of the transport before
  group.engine->attach(group.lane, std::move(transport));
}

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype, Device device) const {
  check();  // a transport that was abandoned would not know why
  Transport& transport = body().moves(device);
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const bool knows = transport.memory() != nullptr && transport.device() == device;
  PEAL_CHECK(!knows || Graph::capturing() == nullptr, "[comm] ", body().lane->who(),
             ", allocate of ", shape, " ", dtype, " on ", device,
             ": ranks agree on memory for collectives, which no replay can repeat; call it before "
             "the graph is captured");
  const auto every = [&](const std::string& mine) { return all_gather_object(mine); };
  StorageRef known;
  try {
    if (knows) known = transport.memory()->allocate(bytes, every);
  } catch (const Error& error) {
    body().tell_end_of(transport, error);
    throw;
  }
  Window* const window = body().lane->window();
  if (device.type == DeviceType::cpu && window != nullptr) {
    GroupRendezvous ranks(*this);
    try {
      known = window->allocate(ranks, bytes);
    } catch (const NoSharedMemory& error) {
      if (rank() == 0) log_warning(error.what(), "; collectives copy what lies in ordinary memory");
    }
  }
  if (!known) return Tensor::zeros(shape, dtype, device);
  auto body = std::make_shared<TensorBody>();
  body->storage = std::move(known);
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

}  // namespace peal::comm
