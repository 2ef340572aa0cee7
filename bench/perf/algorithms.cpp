// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/machine_measurement.h>
#include <peal/bench/perf/algorithms.h>
#include <peal/comm/algorithms/table.h>
#include <peal/launch/machine_file.h>

#include <algorithm>

namespace peal::bench {
namespace {

using comm::Collective;
using comm::Entry;
using comm::Program;

// As the group counts them: elements of all, or of each rank, or of each pair.
std::vector<std::int64_t> counts(const Case& test, int world) {
  const auto n = static_cast<std::size_t>(world);
  switch (*test.operation->what) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
      return std::vector<std::int64_t>(n, test.layout.count);
    case Collective::all_to_all:
      return std::vector<std::int64_t>(n * n, test.layout.count);
    default:
      return {test.layout.count};
  }
}

std::optional<Entry> entry_named(Collective what, std::string_view name) {
  for (const Entry& entry : comm::all_algorithms()) {
    if (entry.what == what && entry.name == name) return entry;
  }
  return std::nullopt;
}

// Nothing where it has no schedule.
std::optional<Program> program(const comm::ProcessGroup& group, const Case& test,
                               const std::string& algorithm, int rank) {
  const int world = group.world();
  if (!test.operation->what) {
    const comm::Block all{0, test.layout.count};
    Program messages;
    if (world > 1) {
      messages.rounds.push_back({comm::recv(comm::wrap(rank - 1, world), comm::out(all)),
                                 comm::send(comm::wrap(rank + 1, world), comm::in(all))});
    }
    return messages;
  }
  const auto entry = entry_named(*test.operation->what, algorithm);
  if (!entry || !entry->supports(world)) return std::nullopt;
  const auto sizes = counts(test, world);
  return comm::plan(*entry, {.what = entry->what,
                             .rank = rank,
                             .world = world,
                             .root = test.root,
                             .counts = sizes,
                             .nodes = group.nodes()});
}

// In place a copy of `in` to where it lies in `out` is nothing.
void drop_copies_in_place(Program& program, const Case& test, int rank) {
  const std::int64_t offset = (test.layout.send_at - test.layout.recv_at) * rank;
  for (comm::Round& round : program.rounds) {
    std::erase_if(round, [offset](const comm::Step& step) {
      return step.kind == comm::Kind::copy && step.dst.buffer == comm::Buffer::out &&
             step.src.buffer == comm::Buffer::in && step.dst.at == step.src.at + offset;
    });
  }
}

// Elements that a rank moves between its memory and others' by itself.
std::int64_t reached(const Program& program) {
  std::int64_t elements = 0;
  for (const comm::Round& round : program.rounds) {
    for (const comm::Step& step : round) {
      if (step.kind != comm::Kind::copy && step.kind != comm::Kind::reduce) continue;
      if (step.src.owner != comm::self) elements += step.src.count;
      if (step.dst.owner != comm::self) elements += step.dst.count;
    }
  }
  return elements;
}

}  // namespace

std::vector<std::string> algorithm_names(const Operation& operation) {
  std::vector<std::string> names;
  for (const Entry& entry : comm::all_algorithms()) {
    if (entry.what == operation.what) names.emplace_back(entry.name);
  }
  names.emplace_back("native");
  return names;
}

Caller caller(const comm::ProcessGroup& group, const Case& test, const std::string& algorithm) {
  if (algorithm.empty()) {
    return [&group, test](const Place& place) {
      return start(group, *test.operation, place, test.in_place, test.op, test.root);
    };
  }
  return [&group, test, algorithm, sizes = counts(test, group.world())](const Place& place) {
    return group.run(*test.operation->what, algorithm, place.recv, place.send, sizes, test.op,
                     test.root);
  };
}

std::string algorithm_of(const comm::ProcessGroup& group, const Case& test,
                         const std::string& algorithm, Buffers& buffers) {
  try {
    const comm::Work work = caller(group, test, algorithm)(buffers.place(test, 0));
    work.wait();
    if (!test.operation->what) return "messages";
    const std::string name = work.algorithm();
    return name.empty() ? "none" : name;
  } catch (const Error&) {
    if (algorithm.empty()) throw;
    group.check();  // the group is as good as before: it was refused, alike on all ranks
    return "";
  }
}

Model::Model(const comm::ProcessGroup& group, const std::string& file, std::int64_t most_bytes)
    : group_(group) {
  if (!file.empty()) {
    machine_ = launch::load_machine(file);
    PEAL_CHECK(static_cast<int>(machine_.nodes.node.size()) == group.world(), "--machine: ", file,
               " speaks of ", machine_.nodes.node.size(), " ranks, expected ", group.world());
    return;
  }
  MachineMeasurement measurement(group);
  const std::int64_t most = std::clamp<std::int64_t>(most_bytes, 1 << 10, 16 << 20);
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (std::int64_t bytes = 64; bytes <= most; bytes *= 4) measurement.measure(bytes);
  }
  machine_ = measurement.machine();
}

std::optional<double> Model::seconds(const Case& test, const std::string& algorithm) const {
  if (!program(group_, test, algorithm, 0)) return std::nullopt;
  const auto of = [&](int rank) {
    Program made = *program(group_, test, algorithm, rank);
    if (test.in_place) drop_copies_in_place(made, test, rank);
    return made;
  };
  return comm::simulate(group_.world(), of, static_cast<int>(size_of(test.dtype)), machine_)
      .seconds;
}

std::optional<comm::Cost> cost_of(const comm::ProcessGroup& group, const Case& test,
                                  const std::string& algorithm) {
  comm::Cost most;
  for (int rank = 0; rank < group.world(); ++rank) {
    const auto made = program(group, test, algorithm, rank);
    if (!made) return std::nullopt;
    const comm::Cost cost = comm::cost(*made);
    most.rounds = std::max(most.rounds, cost.rounds);
    most.sent = std::max(most.sent, cost.sent + reached(*made));
    most.received = std::max(most.received, cost.received);
    most.reduced = std::max(most.reduced, cost.reduced);
  }
  return most;
}

}  // namespace peal::bench
