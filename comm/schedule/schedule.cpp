// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/comm/schedule/schedule.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace peal::comm {
namespace {

std::int64_t total(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

[[noreturn]] void refuse(const Problem& problem, const std::string& field, std::int64_t expected,
                         std::int64_t got) {
  throw std::invalid_argument(std::string(name(problem.what)) + ": expected " + field + " " +
                              std::to_string(expected) + ", got " + std::to_string(got));
}

std::size_t expected_counts(const Problem& problem) {
  const auto world = static_cast<std::size_t>(problem.world);
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      return 1;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
      return world;
    case Collective::all_to_all:
      return world * world;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::int64_t own_offset(const Problem& problem) {
  return total(problem.counts.first(static_cast<std::size_t>(problem.rank)));
}

}  // namespace

bool has_root(Collective what) {
  return what == Collective::reduce || what == Collective::broadcast ||
         what == Collective::gather || what == Collective::scatter;
}

bool is_reduction(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

bool has_in_place(Collective what) { return what != Collective::all_to_all; }

std::string_view name(Collective what) {
  switch (what) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce:
      return "reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::barrier:
      return "barrier";
  }
  return "unknown collective";
}

std::string_view name(Buffer buffer) {
  switch (buffer) {
    case Buffer::in:
      return "in";
    case Buffer::out:
      return "out";
    case Buffer::scratch:
      return "scratch";
    case Buffer::room:
      return "room";
  }
  return "unknown buffer";
}

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
    case Kind::recv_reduce:
      return "recv_reduce";
    case Kind::copy:
      return "copy";
    case Kind::reduce:
      return "reduce";
    case Kind::signal:
      return "signal";
    case Kind::await:
      return "await";
  }
  return "unknown kind";
}

void add(Program& program, Round round) {
  std::erase_if(round, [](const Step& step) {
    const bool orders_only = step.kind == Kind::signal || step.kind == Kind::await;
    return !orders_only && step.dst.count == 0 && step.src.count == 0;
  });
  if (!round.empty()) program.rounds.push_back(std::move(round));
}

Topology single_node(int world) { return {std::vector<int>(static_cast<std::size_t>(world), 0)}; }

void validate(const Problem& problem) {
  if (problem.world < 1) refuse(problem, "a world of at least", 1, problem.world);
  if (problem.rank < 0 || problem.rank >= problem.world) {
    refuse(problem, "a rank below", problem.world, problem.rank);
  }
  if (problem.root < 0 || problem.root >= problem.world) {
    refuse(problem, "a root below", problem.world, problem.root);
  }
  if (!has_root(problem.what) && problem.root != 0) refuse(problem, "root", 0, problem.root);
  if (problem.counts.size() != expected_counts(problem)) {
    refuse(problem, "this many counts:", static_cast<std::int64_t>(expected_counts(problem)),
           static_cast<std::int64_t>(problem.counts.size()));
  }
  for (const std::int64_t count : problem.counts) {
    if (count < 0) refuse(problem, "counts of at least", 0, count);
  }
  if (problem.nodes.node.size() != static_cast<std::size_t>(problem.world)) {
    refuse(problem, "a topology of ranks:", problem.world,
           static_cast<std::int64_t>(problem.nodes.node.size()));
  }
  if (problem.align < 1) refuse(problem, "an alignment of at least", 1, problem.align);
  if (problem.chunk < 0) refuse(problem, "a chunk of at least", 0, problem.chunk);
}

std::int64_t in_count(const Problem& problem) {
  const auto rank = static_cast<std::size_t>(problem.rank);
  const auto world = static_cast<std::size_t>(problem.world);
  const bool at_root = problem.rank == problem.root;
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::reduce:
      return problem.counts[0];
    case Collective::broadcast:
      return at_root ? problem.counts[0] : 0;
    case Collective::all_gather:
    case Collective::gather:
      return problem.counts[rank];
    case Collective::reduce_scatter:
      return total(problem.counts);
    case Collective::scatter:
      return at_root ? total(problem.counts) : 0;
    case Collective::all_to_all:
      return total(problem.counts.subspan(rank * world, world));
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::int64_t out_count(const Problem& problem) {
  const auto rank = static_cast<std::size_t>(problem.rank);
  const auto world = static_cast<std::size_t>(problem.world);
  const bool at_root = problem.rank == problem.root;
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::broadcast:
      return problem.counts[0];
    case Collective::reduce:
      return at_root ? problem.counts[0] : 0;
    case Collective::all_gather:
      return total(problem.counts);
    case Collective::gather:
      return at_root ? total(problem.counts) : 0;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return problem.counts[rank];
    case Collective::all_to_all: {
      std::int64_t column = 0;
      for (std::size_t sender = 0; sender < world; ++sender) {
        column += problem.counts[sender * world + rank];
      }
      return column;
    }
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::int64_t in_place_offset(const Problem& problem) {
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::barrier:
      return 0;
    case Collective::all_gather:
    case Collective::gather:
      return own_offset(problem);
    case Collective::reduce_scatter:
    case Collective::scatter:
      return -own_offset(problem);
    case Collective::all_to_all:
      break;
  }
  throw std::invalid_argument(std::string(name(problem.what)) + " has no in-place form");
}

Blocks::Blocks(std::span<const std::int64_t> counts) : begin_(counts.size() + 1, 0) {
  std::partial_sum(counts.begin(), counts.end(), begin_.begin() + 1);
}

Blocks Blocks::balanced(std::int64_t count, int parts, std::int64_t align) {
  const std::int64_t units = (count + align - 1) / align;
  const std::int64_t whole = units / parts, larger = units % parts;
  Blocks blocks;
  for (std::int64_t i = 0; i <= parts; ++i) {
    blocks.begin_.push_back(std::min(count, align * (i * whole + std::min(i, larger))));
  }
  return blocks;
}

std::int64_t Blocks::largest() const {
  std::int64_t most = 0;
  for (int i = 0; i < size(); ++i) most = std::max(most, (*this)[i].count);
  return most;
}

Block Blocks::operator[](int i) const {
  const bool inside = i >= 0 && i < size();
  const auto at = begin_.begin() + (inside ? i : wrap(i, size()));
  return {at[0], at[1] - at[0]};
}

std::vector<Block> Blocks::run(int first, int n) const {
  const int from = wrap(first, size()), before_end = size() - from;
  if (n <= before_end) return {range(from, n)};
  return {range(from, before_end), range(0, n - before_end)};
}

Block Blocks::range(int first, int n) const {
  const auto at = begin_.begin() + first;
  return {at[0], at[n] - at[0]};
}

Cost cost(const Program& program) {
  Cost cost;
  for (const Round& round : program.rounds) {
    bool message = false;
    for (const Step& step : round) {
      const bool receives = step.kind == Kind::recv || step.kind == Kind::recv_reduce;
      const bool reduces = step.kind == Kind::reduce || step.kind == Kind::recv_reduce;
      message = message || step.peer != nobody;
      if (step.kind == Kind::send) cost.sent += step.src.count;
      if (receives) cost.received += step.dst.count;
      if (reduces) cost.reduced += step.dst.count;
    }
    cost.rounds += message;
  }
  return cost;
}

std::uint64_t hash(const Program& program) {
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  const auto mix_all = [&state](std::initializer_list<std::int64_t> words) {
    for (const std::int64_t word : words) mix(state, static_cast<std::uint64_t>(word));
  };
  const auto mix_span = [&mix_all](const Span& span) {
    mix_all({span.owner, static_cast<std::int64_t>(span.buffer), span.at, span.count});
  };
  mix_all({program.scratch, static_cast<std::int64_t>(program.rounds.size())});
  if (program.room != 0) mix_all({program.room});
  for (const Round& round : program.rounds) {
    mix_all({static_cast<std::int64_t>(round.size())});
    for (const Step& step : round) {
      mix_all({static_cast<std::int64_t>(step.kind), step.peer});
      mix_span(step.dst);
      mix_span(step.src);
    }
  }
  return state;
}

}  // namespace peal::comm
