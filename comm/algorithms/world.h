// SPDX-License-Identifier: Apache-2.0
#pragma once

// A problem for all ranks of a world, with what it views: what tools and tests make plans of.
//
// Thread safety: a value.

#include <peal/comm/algorithms/table.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::comm {

struct World {
  Collective what = Collective::all_reduce;
  int ranks = 1;
  int root = 0;
  std::vector<std::int64_t> counts{};
  std::int64_t align = 1;
  Topology nodes = single_node(ranks);
  std::int64_t chunk = 0;

  Problem problem(int rank = 0) const {
    return {what, rank, ranks, root, counts, nodes, align, chunk};
  }
  // Of all ranks.
  std::vector<Program> programs(const Entry& entry) const;
  // "broadcast by chain, 4 ranks, 100 elements, root 2, chunks of 10"; `each`: with all counts.
  std::string text(const Entry& entry, bool each = false) const;
};

// n elements in all (of a rank, for all_to_all), cut evenly where there is a block a rank.
std::vector<std::int64_t> even_counts(Collective what, int ranks, std::int64_t n);

// Nodes of `size` ranks side by side, the last one smaller; or ranks dealt out to as many in turn.
Topology nodes_of(int ranks, int size, bool dealt_out = false);

}  // namespace peal::comm
