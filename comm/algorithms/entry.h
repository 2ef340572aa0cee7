// SPDX-License-Identifier: Apache-2.0
#pragma once

// An entry of the table of algorithms: all that is true of one, beside its code, so that whoever
// chooses, verifies, costs or tests algorithms asks the entry and knows none by name. A new
// algorithm is a header that ends with its entry, and that entry's name in table.cpp.
//
// Costs are those of the textbooks, to compare the programs with. They are made of Terms, the
// numbers that such formulas are made of. Thread safety: plain values and pure functions.

#include <peal/comm/algorithms/compose.h>
#include <peal/comm/schedule/schedule.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

namespace peal::comm {

struct ClosedForm {
  Cost most;   // of each field, the most that any rank has
  bool exact;  // some rank has it; else it is an upper bound
};

// Numbers of ranks, and what a table calls them.
struct Worlds {
  std::string_view name;
  bool (*contains)(int world);
  constexpr bool operator()(int world) const { return contains(world); }
};
inline constexpr Worlds any_world{"any", [](int) { return true; }};
inline constexpr Worlds power_of_two{
    "powers of 2", [](int world) { return std::has_single_bit(static_cast<unsigned>(world)); }};

struct Entry {
  Collective what;
  std::string_view name;  // unique within a collective
  Algorithm make;
  Worlds supports = any_world;
  // Exact where the algorithm cuts the buffers into equal parts that are not empty; elsewhere the
  // formula is taken of the largest part, and is a bound. REQUIRES a problem that plan() accepts;
  // problem.rank is not looked at.
  ClosedForm (*costs)(const Problem& problem);
  bool pipelined = false;   // it looks at problem.chunk
  bool sees_nodes = false;  // and at problem.nodes
  // Its ranks must share memory; where it looks at nodes, those of each node.
  bool one_sided = false;
  // Of a one-sided one that needs the ranks' own buffers: the name of that which runs where some
  // are out of others' reach. Its programs begin with the same round.
  std::string_view otherwise{};
  // Of one by messages: the name of that which runs where the ranks of each node share memory. It
  // sends the same between nodes.
  std::string_view in_memory{};
  // Each sum is one combination of all ranks' elements (plan.h), from rank 0 to the last: one tree
  // of additions, whatever the place of an element and the size of the buffer.
  bool at_once = false;
};

struct Terms {
  using Count = std::int64_t;

  int p, up, down, folded;  // ranks, log2 rounded up and down, ranks past the power of two
  Count n = 0;              // elements of the whole buffer, where counts are no blocks
  Count others;             // p - 1
  Count block = 0;          // the largest of the blocks
  bool equal = true;        // blocks, and none is empty
  Count k = 0;              // chunks
  Count subtree = 0;        // ranks of the largest subtree of a binomial tree, below the root

  // Of a problem that validate() has passed.
  explicit Terms(const Problem& problem)
      : p(problem.world),
        up(std::bit_width(static_cast<unsigned>(p - 1))),
        down(std::bit_width(static_cast<unsigned>(p)) - 1),
        folded(p - (1 << down)),
        others(p - 1) {
    if (problem.counts.size() == 1) {
      n = problem.counts[0];
      cut(p, problem.align);
      k = n == 0 ? 0 : chunks(problem);
    } else if (!problem.counts.empty()) {
      block = std::ranges::max(problem.counts);
      equal = block > 0 && std::ranges::min(problem.counts) == block;
    }
    for (Count s = 1; s < p; s *= 2) subtree = std::max(subtree, std::min(s, p - s));
  }

  // Sets `block` and `equal` for n elements in so many parts, cut in units of `align` elements.
  void cut(int parts, Count align) {
    const Blocks blocks = Blocks::balanced(n, parts, align);
    block = blocks.largest();
    equal = n > 0 && blocks[parts - 1].count == block;
  }

  // Every block but one goes out, comes in and, if it `reduces`, is added.
  Cost once(Count rounds, bool reduces) const {
    const Count all = block * others;
    return {rounds, all, all, reduces ? all : 0};
  }
  // The same, and then goes out and comes in again.
  Cost twice(Count rounds) const {
    const Count all = block * others;
    return {rounds, 2 * all, 2 * all, all};
  }
};

}  // namespace peal::comm
