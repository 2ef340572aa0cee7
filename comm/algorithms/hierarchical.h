// SPDX-License-Identifier: Apache-2.0
#pragma once

// All_reduce on two levels: for machines whose nodes are joined by something slower than what joins
// the ranks of a node.
//
// Vocabulary. q is the number of ranks of the smallest node. The buffer is cut into q slices. Slice
// j belongs, in each node, to the node's j-th rank, its owner; the j-th ranks of all nodes are a
// column. Ranks past the q-th of a larger node own nothing.
//
// Three phases. Inside each node a reduce_scatter: each owner holds its slice, summed over the
// node. In each column an all_reduce of the slice, in place: summed over all. Inside each node an
// all_gather of the slices. All nodes copy the same sums: all ranks get the same bits.
//
// The columns' phase is circulant.h, embedded in the world. Inside there are three ways:
//   - messages: circulant.h as well;
//   - direct, where the node's ranks reach each other's buffers: they meet, each owner adds its
//     slice of all `in`, and in the end stores the sum into all `out`; and they meet again. As
//     direct_slices.h, with the column between the sum and the stores. No race, in place too: slice
//     j of any buffer of the node is touched by its owner alone, and read before it is written.
//   - staged, where they do not: the reduce_scatter and all_gather of staged_slices.h.
// Columns are alike in all three: one node may go one way, and another node another. A rank that is
// alone on its node goes the first, which has nothing inside then.
//
// Cost, n elements, N nodes of q ranks: 2 ceil(log2 N) rounds between the nodes, and inside
// 2 ceil(log2 q) of messages, or 2 of signals, or as many as staged_slices.h has. By messages each
// rank sends 2n(q-1)/q inside; between nodes 2n/q (N-1)/N: all q columns use the wire at once, and
// each node sends what it must and no more.
//
// Source: of common use; e.g. P. Sanders, J. L. Traff, The hierarchical factor algorithm for
// all-to-all communication, Euro-Par 2002, for the columns.

#include <peal/comm/algorithms/circulant.h>
#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>
#include <peal/comm/algorithms/staged_slices.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

namespace peal::comm {

// The nodes and their slices, the same for all ranks.
struct NodeSlices {
  explicit NodeSlices(const Problem& problem) {
    for (int r = 0; r < problem.world; ++r) {
      members[problem.nodes.node[static_cast<std::size_t>(r)]].push_back(r);
    }
    least = most = members.begin()->second.size();
    for (const auto& [node, ranks] : members) {
      least = std::min(least, ranks.size());
      most = std::max(most, ranks.size());
    }
    slices = Blocks::balanced(problem.counts[0], static_cast<int>(least), problem.align);
  }
  // Of the slices, by the ranks of a node of so many.
  std::vector<std::int64_t> counts(std::size_t ranks) const {
    std::vector<std::int64_t> all(ranks);
    for (std::size_t j = 0; j < least; ++j) all[j] = slices[static_cast<int>(j)].count;
    return all;
  }

  std::map<int, std::vector<int>> members{};  // of each node, ranks ascending
  std::size_t least = 0, most = 0;            // ranks of a node
  Blocks slices{{}};
};

// The two levels as one rank sees them.
class Levels {
 public:
  explicit Levels(const Problem& problem)
      : problem_(problem),
        nodes_(problem),
        node_(problem.nodes.node[static_cast<std::size_t>(problem.rank)]),
        me_(static_cast<std::size_t>(std::ranges::find(inside(), problem.rank) - inside().begin())),
        counts_(nodes_.counts(inside().size())),
        own_(me_ < nodes_.least ? nodes_.slices[static_cast<int>(me_)] : Block{}) {}

  // The ranks of this rank's node, ascending; the world's numbers.
  const std::vector<int>& inside() const { return nodes_.members.at(node_); }
  // This rank's slice; empty where it owns none.
  const Block& own() const { return own_; }

  // This rank's program of a collective of its node, of a slice a rank.
  Program within(Collective what, Algorithm algorithm, Span in, Span out) const {
    return embed(algorithm(part(what, me_, inside().size(), counts_)), inside(), in, out);
  }
  // Of the all_reduce of its column, in `out`.
  Program across() const {
    if (me_ >= nodes_.least) return {};
    std::vector<int> column;
    for (const auto& [node, ranks] : nodes_.members) column.push_back(ranks[me_]);
    const auto place =
        static_cast<std::size_t>(std::ranges::find(column, problem_.rank) - column.begin());
    const std::int64_t count[] = {own_.count};
    return embed(circulant_all_reduce(part(Collective::all_reduce, place, column.size(), count)),
                 column, out(own_), out(own_));
  }

 private:
  Problem part(Collective what, std::size_t rank, std::size_t world,
               std::span<const std::int64_t> counts) const {
    return {.what = what,
            .rank = static_cast<int>(rank),
            .world = static_cast<int>(world),
            .root = 0,
            .counts = counts,
            .nodes = problem_.nodes,
            .align = problem_.align,
            .chunk = problem_.chunk};
  }

  const Problem& problem_;
  NodeSlices nodes_;
  int node_;
  std::size_t me_;
  std::vector<std::int64_t> counts_;  // of the slices, by the node's ranks
  Block own_;
};

// Inside by these two.
inline Program hierarchical_by(const Levels& levels, Algorithm reduce_scatter,
                               Algorithm all_gather) {
  Program program =
      levels.within(Collective::reduce_scatter, reduce_scatter, in({}), out(levels.own()));
  append(program, levels.across());
  append(program, levels.within(Collective::all_gather, all_gather, out(levels.own()), out({})));
  return program;
}

inline Program hierarchical_all_reduce(const Problem& problem) {
  return hierarchical_by(Levels(problem), circulant_reduce_scatter, circulant_all_gather);
}

inline Program hierarchical_staged_all_reduce(const Problem& problem) {
  const Levels levels(problem);
  if (levels.inside().size() == 1) return hierarchical_all_reduce(problem);
  return hierarchical_by(levels, staged_slices_reduce_scatter, staged_slices_all_gather);
}

inline Program hierarchical_direct_all_reduce(const Problem& problem) {
  const Levels levels(problem);
  const auto of_node = [&](Span span) {
    std::vector<Span> all;
    for (const int r : levels.inside()) all.push_back(of(r, problem.rank, span));
    return all;
  };
  if (levels.inside().size() == 1) return hierarchical_all_reduce(problem);
  const Span sum = out(levels.own());
  Program program;
  add_meeting(program, problem.rank, levels.inside());
  add_combination(program, {sum}, of_node(in(levels.own())));
  append(program, levels.across());
  Round stores;
  for (const Span& there : of_node(sum)) {
    if (there.owner != self) stores.push_back(copy(there, sum));
  }
  add(program, std::move(stores));
  add_meeting(program, problem.rank, levels.inside());
  return program;
}

// What is sent and received in columns, and added there and, of each node's slices, by their
// owners.
inline ClosedForm costs_of_columns(const Problem& problem, bool inside_by_messages,
                                   std::int64_t (*rounds_inside)(const Problem& inside)) {
  const std::int64_t n = problem.counts[0];
  const NodeSlices all(problem);
  const int nodes = static_cast<int>(all.members.size());
  const auto least = static_cast<std::int64_t>(all.least),
             most = static_cast<std::int64_t>(all.most);
  const std::int64_t slice = all.slices.largest();
  const std::int64_t piece = Blocks::balanced(slice, nodes, problem.align).largest();
  const std::int64_t across = piece * (nodes - 1), within = slice * (most - 1);
  const bool exact = least == most && n > 0 && piece * nodes * least == n;
  const std::vector<std::int64_t> counts = all.counts(all.most);
  Problem inside = problem;
  inside.world = static_cast<int>(all.most);
  inside.counts = counts;
  const auto log2 = std::bit_width(static_cast<unsigned>(nodes - 1));
  const std::int64_t sent = 2 * (across + (inside_by_messages ? within : 0));
  return {{rounds_inside(inside) + 2 * log2, sent, sent, across + within}, exact};
}

inline constexpr Entry hierarchical_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "hierarchical",
    .make = hierarchical_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      return costs_of_columns(problem, true, [](const Problem& inside) -> std::int64_t {
        return 2 * std::bit_width(static_cast<unsigned>(inside.world - 1));
      });
    },
    .sees_nodes = true,
    .in_memory = "hierarchical_direct",
};

inline constexpr Entry hierarchical_direct_entry{
    .what = Collective::all_reduce,
    .name = "hierarchical_direct",
    .make = hierarchical_direct_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      return costs_of_columns(problem, false, [](const Problem& inside) -> std::int64_t {
        return inside.world > 1 ? 2 : 0;
      });
    },
    .sees_nodes = true,
    .one_sided = true,
    .otherwise = "hierarchical_staged",
};

inline constexpr Entry hierarchical_staged_entry{
    .what = Collective::all_reduce,
    .name = "hierarchical_staged",
    .make = hierarchical_staged_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      return costs_of_columns(problem, false, [](const Problem& inside) -> std::int64_t {
        if (inside.world == 1) return 0;
        const std::int64_t slice = longest_of(inside);
        return 2 + StagedChunks(inside, slice, inside.world).count +
               StagedChunks(inside, slice, 1).count;
      });
    },
    .pipelined = true,
    .sees_nodes = true,
    .one_sided = true,
};

}  // namespace peal::comm
