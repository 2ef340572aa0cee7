// SPDX-License-Identifier: Apache-2.0
#pragma once

// All_reduce on two levels: for machines whose nodes are joined by something slower than what joins
// the ranks of a node.
//
// Vocabulary. q is the number of ranks of the smallest node. The buffer is cut into q slices. Slice
// j belongs, in each node, to the node's j-th rank; the j-th ranks of all nodes are a column. Ranks
// past the q-th of a larger node own nothing.
//
// Three phases, each an algorithm of circulant.h embedded in a part of the world. Inside each node
// a reduce_scatter: each owner holds its slice, summed over the node. In each column an all_reduce
// of the slice, in place: summed over all. Inside each node an all_gather of the slices. All nodes
// copy the same sums: all ranks get the same bits.
//
// Cost, n elements, N nodes of q ranks: 2 ceil(log2 q) + 2 ceil(log2 N) rounds. Inside nodes each
// rank sends 2n(q-1)/q, between nodes 2n/q (N-1)/N: all q columns use the wire at once, and each
// node sends what it must and no more.
//
// Source: of common use; e.g. P. Sanders, J. L. Traff, The hierarchical factor algorithm for
// all-to-all communication, Euro-Par 2002, for the columns.

#include <peal/comm/algorithms/circulant.h>
#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <vector>

namespace peal::comm {

inline Program hierarchical_all_reduce(const Problem& problem) {
  std::map<int, std::vector<int>> members;  // of each node, ranks ascending
  for (int r = 0; r < problem.world; ++r) {
    members[problem.nodes.node[static_cast<std::size_t>(r)]].push_back(r);
  }
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  for (const auto& [node, ranks] : members) smallest = std::min(smallest, ranks.size());
  const std::vector<int>& inside =
      members[problem.nodes.node[static_cast<std::size_t>(problem.rank)]];
  const auto me =
      static_cast<std::size_t>(std::ranges::find(inside, problem.rank) - inside.begin());

  const Blocks slice =
      Blocks::balanced(problem.counts[0], static_cast<int>(smallest), problem.align);
  std::vector<std::int64_t> counts(inside.size(), 0);
  for (std::size_t j = 0; j < smallest; ++j) counts[j] = slice[static_cast<int>(j)].count;
  const Block own = me < smallest ? slice[static_cast<int>(me)] : Block{};
  const auto part = [&](Collective what, std::size_t rank, std::size_t world,
                        std::span<const std::int64_t> sizes) {
    return Problem{.what = what,
                   .rank = static_cast<int>(rank),
                   .world = static_cast<int>(world),
                   .root = 0,
                   .counts = sizes,
                   .nodes = problem.nodes,
                   .align = problem.align};
  };

  Program program =
      embed(circulant_reduce_scatter(part(Collective::reduce_scatter, me, inside.size(), counts)),
            inside, in({}), out(own));
  if (me < smallest) {
    std::vector<int> column;
    for (const auto& [node, ranks] : members) column.push_back(ranks[me]);
    const auto place =
        static_cast<std::size_t>(std::ranges::find(column, problem.rank) - column.begin());
    const std::int64_t count[] = {own.count};
    append(program,
           embed(circulant_all_reduce(part(Collective::all_reduce, place, column.size(), count)),
                 column, out(own), out(own)));
  }
  append(program,
         embed(circulant_all_gather(part(Collective::all_gather, me, inside.size(), counts)),
               inside, out(own), out({})));
  return program;
}

inline constexpr Entry hierarchical_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "hierarchical",
    .make = hierarchical_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      std::map<int, int> sizes;
      for (const int node : problem.nodes.node) ++sizes[node];
      int least = t.p, most = 0;
      for (const auto& [node, size] : sizes) {
        least = std::min(least, size);
        most = std::max(most, size);
      }
      const int nodes = static_cast<int>(sizes.size());
      const std::int64_t slice = Blocks::balanced(t.n, least, problem.align).largest();
      const std::int64_t piece = Blocks::balanced(slice, nodes, problem.align).largest();
      const std::int64_t all = slice * (most - 1) + piece * (nodes - 1);
      const bool exact = least == most && t.n > 0 && piece * nodes * least == t.n;
      const auto log2 = [](int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); };
      return {{2 * log2(most) + 2 * log2(nodes), 2 * all, 2 * all, all}, exact};
    },
    .sees_nodes = true,
};

}  // namespace peal::comm
