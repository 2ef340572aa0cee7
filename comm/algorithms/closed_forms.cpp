// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/closed_forms.h>
#include <peal/comm/algorithms/compose.h>

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>
#include <string>

namespace peal::comm {
namespace {

using Count = std::int64_t;

int log2_up(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }
int log2_down(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }

// The numbers that the formulas are made of.
struct Terms {
  int p, up, down, folded;  // ranks, log2 rounded up and down, ranks past the power of two
  Count n;                  // elements of the whole buffer, where counts are no blocks
  Count others;             // p - 1
  Count block;              // the largest of the blocks
  bool equal;               // blocks, and none is empty
  Count k;                  // chunks
  Count subtree;            // ranks of the largest subtree of a binomial tree, below the root

  explicit Terms(const Problem& problem)
      : p(problem.world),
        up(log2_up(p)),
        down(log2_down(p)),
        folded(p - (1 << down)),
        n(0),
        others(p - 1),
        block(0),
        equal(true),
        k(0),
        subtree(0) {
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

  void cut(int parts, Count align) {
    const Blocks blocks = Blocks::balanced(n, parts, align);
    block = blocks.largest();
    equal = n > 0 && blocks[parts - 1].count == block;
  }
};

// Every block but one goes out, comes in and, if `reduces`, is added.
Cost once(const Terms& t, Count rounds, bool reduces) {
  const Count all = t.block * t.others;
  return {rounds, all, all, reduces ? all : 0};
}
Cost twice(const Terms& t, Count rounds) {
  const Count all = t.block * t.others;
  return {rounds, 2 * all, 2 * all, all};
}

ClosedForm bidirectional_ring(Terms t, const Problem& problem) {
  const Blocks halves = Blocks::balanced(t.n, 2, problem.align);
  const Blocks up = Blocks::balanced(halves[0].count, t.p, problem.align);
  const Blocks down = Blocks::balanced(halves[1].count, t.p, problem.align);
  t.block = up.largest() + down.largest();
  t.equal = t.n > 0 && t.block * t.p == t.n;
  return {twice(t, 2 * t.others), t.equal};
}

ClosedForm recursive_doubling(const Terms& t) {
  const bool folds = t.folded > 0;
  const Count moved = t.n * (t.down + folds);
  return {{t.down + 2 * folds, moved, moved, moved}, t.n > 0};
}

ClosedForm rabenseifner(Terms t, const Problem& problem) {
  const Count whole = t.folded > 0 ? t.n : 0;
  const int q = 1 << t.down;
  t.cut(q, problem.align);
  const Count all = t.block * (q - 1);
  return {{2 * t.down + 2 * (t.folded > 0), 2 * all + whole, 2 * all + whole, all + whole},
          t.equal};
}

ClosedForm double_tree(const Terms& t, const Problem& problem) {
  if (t.p == 1 || t.n == 0) return {{}, true};
  const Count chunk = Blocks::balanced(t.n, chunks(problem), problem.align).largest();
  const Count half = t.k * Blocks::balanced(chunk, 2, problem.align).largest();
  return {{3 * t.up + t.k - 1, 4 * half, 4 * half, 2 * half}, false};
}

ClosedForm hierarchical(const Terms& t, const Problem& problem) {
  std::map<int, int> sizes;
  for (const int node : problem.nodes.node) ++sizes[node];
  int least = t.p, most = 0;
  for (const auto& [node, size] : sizes) {
    least = std::min(least, size);
    most = std::max(most, size);
  }
  const int nodes = static_cast<int>(sizes.size());
  const Blocks slices = Blocks::balanced(t.n, least, problem.align);
  const Count slice = slices.largest();
  const Count piece = Blocks::balanced(slice, nodes, problem.align).largest();
  const Count all = slice * (most - 1) + piece * (nodes - 1);
  const bool exact = least == most && t.n > 0 && piece * nodes * least == t.n;
  return {{2 * log2_up(most) + 2 * log2_up(nodes), 2 * all, 2 * all, all}, exact};
}

ClosedForm chain(const Terms& t, bool reduces) {
  if (t.p == 1) return {{}, true};
  return {{t.k + (t.p > 2), t.n, t.n, reduces ? t.n : 0}, t.n > 0};
}

Count bruck_blocks(int p) {
  Count blocks = 0;
  for (int distance = 1; distance < p; ++distance) {
    blocks += std::popcount(static_cast<unsigned>(distance));
  }
  return blocks;
}

}  // namespace

ClosedForm closed_form(const Entry& entry, const Problem& problem) {
  const Terms t(problem);
  const auto is = [&](std::string_view name) { return entry.name == name; };
  const Count once_if_not_alone = t.p > 1 ? t.n : 0;
  switch (entry.what) {
    case Collective::all_reduce:
      if (is("ring")) return {twice(t, 2 * t.others), t.equal};
      if (is("bidirectional_ring")) return bidirectional_ring(t, problem);
      if (is("recursive_doubling")) return recursive_doubling(t);
      if (is("rabenseifner")) return rabenseifner(t, problem);
      if (is("circulant") || is("swing")) return {twice(t, 2 * t.up), t.equal};
      if (is("binomial")) return {{2 * t.up, t.n * t.up, t.n * t.up, t.n * t.up}, t.n > 0};
      if (is("double_tree")) return double_tree(t, problem);
      if (is("direct_slices")) {
        return {{t.p > 1 ? 2 : 0, 0, 0, t.block * t.others}, t.equal};
      }
      if (is("hierarchical")) return hierarchical(t, problem);
      break;
    case Collective::reduce:
      if (is("binomial")) return {{t.up, once_if_not_alone, t.n * t.up, t.n * t.up}, t.n > 0};
      if (is("chain")) return chain(t, true);
      break;
    case Collective::broadcast:
      if (is("binomial")) return {{t.up, t.n * t.up, once_if_not_alone, 0}, t.n > 0};
      if (is("scatter_ring")) {
        return {{t.up + t.others, 2 * t.block * t.others, t.block * (t.others + t.subtree), 0},
                t.equal};
      }
      if (is("chain")) return chain(t, false);
      break;
    case Collective::all_gather:
      if (is("ring")) return {once(t, t.others, false), t.equal};
      if (is("recursive_doubling") || is("bruck") || is("circulant")) {
        return {once(t, t.up, false), t.equal};
      }
      break;
    case Collective::reduce_scatter:
      if (is("ring") || is("pairwise")) return {once(t, t.others, true), t.equal};
      if (is("recursive_halving") || is("circulant")) return {once(t, t.up, true), t.equal};
      break;
    case Collective::gather:
      if (is("binomial")) return {{t.up, t.block * t.subtree, t.block * t.others, 0}, t.equal};
      if (is("direct")) return {{t.p > 1, t.p > 1 ? t.block : 0, t.block * t.others, 0}, t.equal};
      break;
    case Collective::scatter:
      if (is("binomial")) return {{t.up, t.block * t.others, t.block * t.subtree, 0}, t.equal};
      if (is("direct")) return {{t.p > 1, t.block * t.others, t.p > 1 ? t.block : 0, 0}, t.equal};
      break;
    case Collective::all_to_all:
      if (is("pairwise")) return {once(t, t.others, false), t.equal};
      if (is("bruck")) {
        const Count moved = t.block * bruck_blocks(t.p);
        return {{t.up, moved, moved, 0}, t.equal};
      }
      break;
    case Collective::barrier:
      if (is("dissemination")) return {{t.up, 0, 0, 0}, true};
      break;
  }
  throw std::invalid_argument("no closed form is known for " + std::string(name(entry.what)) +
                              " by " + std::string(entry.name));
}

}  // namespace peal::comm
