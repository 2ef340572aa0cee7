// SPDX-License-Identifier: Apache-2.0
#pragma once

// A problem together with what it views, for a whole world.

#include <peal/comm/algorithms/table.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm::testing {

struct World {
  Collective what;
  int world;
  int root = 0;
  std::vector<std::int64_t> counts;
  std::int64_t align = 1;
  Topology nodes = single_node(world);
  std::int64_t chunk = 0;

  Problem problem(int rank = 0) const {
    return {what, rank, world, root, counts, nodes, align, chunk};
  }

  std::vector<Program> programs(const Entry& entry) const {
    std::vector<Program> all;
    for (int rank = 0; rank < world; ++rank) all.push_back(plan(entry, problem(rank)));
    return all;
  }

  std::string text(const Entry& entry) const {
    std::string all = std::string(name(what)) + " " + std::string(entry.name) + ", world " +
                      std::to_string(world) + ", root " + std::to_string(root) + ", chunk " +
                      std::to_string(chunk) + ", counts";
    for (const std::int64_t count : counts) all += " " + std::to_string(count);
    return all;
  }
};

// Those for any transport, and those for symmetric memory.
inline std::vector<Entry> all_algorithms() {
  std::vector<Entry> all(algorithms().begin(), algorithms().end());
  all.insert(all.end(), one_sided_algorithms().begin(), one_sided_algorithms().end());
  return all;
}

inline bool has_root(Collective what) {
  return what == Collective::reduce || what == Collective::broadcast ||
         what == Collective::gather || what == Collective::scatter;
}

// Whether in == out is one of the ways to call it.
inline std::vector<bool> in_place_or_not(Collective what) {
  return what == Collective::all_to_all ? std::vector<bool>{false} : std::vector<bool>{false, true};
}

// Counts of n elements in all (of a rank, for all_to_all): whole, or cut evenly or raggedly (with
// empty blocks).
inline std::vector<std::int64_t> counts_for(Collective what, int world, std::int64_t n,
                                            bool ragged) {
  switch (what) {
    case Collective::barrier:
      return {};
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      return {n};
    default:
      break;
  }
  std::vector<std::int64_t> row;
  for (int r = 0; r < world; ++r) row.push_back(Blocks::balanced(n, world)[r].count);
  for (int r = 1; ragged && r < world; r += 2)
    row[0] += std::exchange(row[static_cast<std::size_t>(r)], r % 3);
  if (what != Collective::all_to_all) return row;
  std::vector<std::int64_t> matrix;
  for (int r = 0; r < world; ++r) {
    matrix.insert(matrix.end(), row.begin(), row.end());
    if (ragged) std::ranges::rotate(row, row.begin() + 1);
  }
  return matrix;
}

// Ranks dealt out to nodes in turn, or in nodes of `size` ranks side by side, the last one smaller.
inline Topology nodes_of(int world, int size, bool dealt_out) {
  Topology topology;
  const int nodes = (world + size - 1) / size;
  for (int r = 0; r < world; ++r) topology.node.push_back(dealt_out ? r % nodes : r / size);
  return topology;
}

// Every world that an algorithm is tried on: all roots, even and ragged blocks, short and long
// pipelines, one node and several.
inline std::vector<World> worlds_for(const Entry& entry, int world, std::int64_t n) {
  std::vector<World> all;
  const bool whole = counts_for(entry.what, 2, 0, false).size() <= 1;
  const bool pipelined = entry.name == "chain" || entry.name == "double_tree";
  for (int root = 0; root < (has_root(entry.what) ? world : 1); ++root) {
    for (const bool ragged : {false, true}) {
      if (whole && ragged) continue;
      all.push_back({entry.what, world, root, counts_for(entry.what, world, n, ragged)});
    }
    if (!pipelined) continue;
    all.push_back(all.back());
    all.back().chunk = 5;
  }
  if (entry.name == "hierarchical") {
    for (const int size : {2, 3}) {
      for (const bool dealt_out : {false, true}) {
        all.push_back(all.front());
        all.back().nodes = nodes_of(world, size, dealt_out);
      }
    }
  }
  return all;
}

}  // namespace peal::comm::testing
