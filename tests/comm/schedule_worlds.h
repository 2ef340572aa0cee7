// SPDX-License-Identifier: Apache-2.0
#pragma once

// The worlds that tests try algorithms on.

#include <peal/comm/algorithms/world.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm::testing {

// Whether in == out is one of the ways to call it.
inline std::vector<bool> in_place_or_not(Collective what) {
  return has_in_place(what) ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

// Counts of n elements in all (of a rank, for all_to_all): whole, or cut evenly or raggedly (with
// empty blocks).
inline std::vector<std::int64_t> counts_for(Collective what, int world, std::int64_t n,
                                            bool ragged) {
  std::vector<std::int64_t> counts = even_counts(what, world, n);
  if (!ragged || counts.size() <= 1) return counts;
  const auto p = static_cast<std::size_t>(world);
  std::vector<std::int64_t> row(counts.begin(), counts.begin() + world);
  for (std::size_t r = 1; r < p; r += 2) {
    row[0] += std::exchange(row[r], static_cast<std::int64_t>(r % 3));
  }
  for (std::size_t at = 0; at < counts.size(); at += p) {
    std::ranges::copy(row, counts.begin() + static_cast<std::ptrdiff_t>(at));
    std::ranges::rotate(row, row.begin() + 1);
  }
  return counts;
}

// Every world that an algorithm is tried on: all roots, even and ragged blocks, short and long
// pipelines, one node and several.
inline std::vector<World> worlds_for(const Entry& entry, int world, std::int64_t n) {
  std::vector<World> all;
  const bool whole = counts_for(entry.what, 2, 0, false).size() <= 1;
  for (int root = 0; root < (has_root(entry.what) ? world : 1); ++root) {
    for (const bool ragged : {false, true}) {
      if (whole && ragged) continue;
      all.push_back({entry.what, world, root, counts_for(entry.what, world, n, ragged)});
    }
    if (!entry.pipelined) continue;
    all.push_back(all.back());
    all.back().chunk = 5;
  }
  if (entry.one_sided) {  // pieces of whole lines of the cache
    all.push_back(all.front());
    all.back().align = 4;
    all.back().chunk = 3 * world + 1;
  }
  if (entry.sees_nodes) {
    for (const int size : {2, 3}) {
      for (const bool dealt_out : {false, true}) {
        all.push_back(all.front());
        all.back().nodes = nodes_of(world, size, dealt_out);
        if (!entry.pipelined) continue;
        all.push_back(all.back());
        all.back().chunk = 5;
      }
    }
  }
  return all;
}

}  // namespace peal::comm::testing
