// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/world.h>

#include <algorithm>
#include <numeric>

namespace peal::comm {

std::vector<Program> World::programs(const Entry& entry) const {
  std::vector<Program> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(plan(entry, problem(rank)));
  return all;
}

std::string World::text(const Entry& entry, bool each) const {
  std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (what == Collective::all_to_all) n /= ranks;
  std::string all = std::string(name(what)) + " by " + std::string(entry.name) + ", " +
                    std::to_string(ranks) + " ranks, " + std::to_string(n) + " elements";
  if (has_root(what)) all += ", root " + std::to_string(root);
  if (chunk > 0) all += ", chunks of " + std::to_string(chunk);
  const int last = std::ranges::max(nodes.node);
  if (last > 0) all += ", " + std::to_string(last + 1) + " nodes";
  if (each) {
    all += ", counts";
    for (const std::int64_t count : counts) all += " " + std::to_string(count);
  }
  return all;
}

std::vector<std::int64_t> even_counts(Collective what, int ranks, std::int64_t n) {
  if (what == Collective::barrier) return {};
  if (what == Collective::all_reduce || what == Collective::reduce ||
      what == Collective::broadcast) {
    return {n};
  }
  const Blocks block = Blocks::balanced(n, ranks);
  std::vector<std::int64_t> counts;
  for (int row = 0; row < (what == Collective::all_to_all ? ranks : 1); ++row) {
    for (int r = 0; r < ranks; ++r) counts.push_back(block[r].count);
  }
  return counts;
}

Topology nodes_of(int ranks, int size, bool dealt_out) {
  Topology topology;
  const int nodes = (ranks + size - 1) / size;
  for (int r = 0; r < ranks; ++r) topology.node.push_back(dealt_out ? r % nodes : r / size);
  return topology;
}

}  // namespace peal::comm
