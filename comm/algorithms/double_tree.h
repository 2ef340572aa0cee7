// SPDX-License-Identifier: Apache-2.0
#pragma once

// The double binary tree: an all_reduce of logarithmic depth that still keeps all ranks busy.
//
// Why two trees. Half the ranks of a binary tree are leaves, which in a reduction and a broadcast
// only send once and receive once, while an inner rank sends three times. So the buffer is cut into
// halves, each has a tree of its own, and whoever is inner in the one tree is a leaf in the other.
//
// Vocabulary. The tree over the places 0 .. p-1: the reach b of a place is its lowest bit set.
// Place v > 0 hangs under v - b if v has the bit 2b, else under v + b (where that place exists); so
// odd places are leaves and 0 is the root, with one child. The first tree has rank r at place r.
// The second one is mirrored (rank r at place p-1-r) if p is even, which swaps odd and even; if p
// is odd it is shifted by one (place r-1), and only rank 0 is inner in both.
//
// Steps of a half, D = ceil(log2 p) the greatest depth: partial sums go up, a rank at depth d
// sending in round 2(D-d), or the one after if it is the right child, for two children must not add
// to the same numbers at once. Then the sums go down, from depth d in round 2D+d. All ranks get
// copies of what the root has.
//
// Pipeline. The buffer is cut into k chunks, each half of one tree and half of the other, each a
// round behind the one before (segment, in compose.h).
//
// Cost, n elements: at most 3D+k-1 rounds; a rank sends at most 2n and adds at most n. Where a rank
// can send only one message at a time, a round of the full pipeline takes four of n/2k, so that all
// takes about 2n + O(n log(p) / k).
//
// Source: P. Sanders, J. Speck, J. L. Traff, Two-tree algorithms for full bandwidth broadcast,
// reduction and scan, Parallel Computing 35 (2009). The shape of the trees is that of S. Jeaugey,
// Massively scale your deep learning training with NCCL 2.4 (2019).

#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>

#include <bit>
#include <vector>

namespace peal::comm {

class BinaryTree {
 public:
  enum class Shape { plain, mirrored, shifted };

  BinaryTree(int world, Shape shape) : world_(world), shape_(shape) {}

  static constexpr int none = -1;
  int parent(int rank) const {
    const int v = place(rank);
    return v == 0 ? none : rank_at(above(v));
  }
  // Left before right; a rank without two has only the first of these, or none.
  std::vector<int> children(int rank) const {
    const int v = place(rank);
    std::vector<int> found;
    const int reach = v == 0 ? 2 * static_cast<int>(std::bit_floor(unsigned(world_))) : v & -v;
    if (v > 0 && reach > 1) found.push_back(rank_at(v - reach / 2));
    int right = reach / 2;
    while (right > 0 && v + right >= world_) right /= 2;
    if (right > 0) found.push_back(rank_at(v + right));
    return found;
  }
  int depth(int rank) const {
    int depth = 0;
    for (int v = place(rank); v != 0; v = above(v)) ++depth;
    return depth;
  }

 private:
  int above(int v) const {
    const int b = v & -v;
    return (v & 2 * b) != 0 || v + b >= world_ ? v - b : v + b;
  }
  int place(int rank) const {
    return shape_ == Shape::plain      ? rank
           : shape_ == Shape::mirrored ? world_ - 1 - rank
                                       : wrap(rank - 1, world_);
  }
  int rank_at(int v) const { return shape_ == Shape::shifted ? wrap(v + 1, world_) : place(v); }

  int world_;
  Shape shape_;
};

// One chunk, in `out`, which holds the own numbers. Keeps step.
inline Program double_tree_chunk(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const auto deepest = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(p - 1)));
  const BinaryTree trees[] = {
      {p, BinaryTree::Shape::plain},
      {p, p % 2 == 0 ? BinaryTree::Shape::mirrored : BinaryTree::Shape::shifted}};
  const Blocks half = Blocks::balanced(problem.counts[0], 2, problem.align);

  Program program{0, std::vector<Round>(3 * deepest)};
  for (int t = 0; t < 2; ++t) {
    const BinaryTree& tree = trees[t];
    const Span mine = out(half[t]);
    const auto depth = static_cast<std::size_t>(tree.depth(rank));
    const auto children = tree.children(rank);
    for (std::size_t side = 0; side < children.size(); ++side) {
      program.rounds[2 * (deepest - depth - 1) + side].push_back(recv_reduce(children[side], mine));
      program.rounds[2 * deepest + depth].push_back(send(children[side], mine));
    }
    const int parent = tree.parent(rank);
    if (parent == BinaryTree::none) continue;
    const std::size_t side = tree.children(parent)[0] == rank ? 0 : 1;
    program.rounds[2 * (deepest - depth) + side].push_back(send(parent, mine));
    program.rounds[2 * deepest + depth - 1].push_back(recv(parent, mine));
  }
  return program;
}

inline Program double_tree_all_reduce(const Problem& problem) {
  const Block all{0, problem.counts[0]};
  Program program;
  add(program, {copy(out(all), in(all))});
  append(program, segment(double_tree_chunk, problem, chunks(problem)));
  return program;
}

inline constexpr Entry double_tree_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "double_tree",
    .make = double_tree_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      if (t.p == 1 || t.n == 0) return {{}, true};
      const std::int64_t chunk = Blocks::balanced(t.n, chunks(problem), problem.align).largest();
      const std::int64_t half = t.k * Blocks::balanced(chunk, 2, problem.align).largest();
      return {{3 * t.up + t.k - 1, 4 * half, 4 * half, 2 * half}, false};
    },
    .pipelined = true,
};

}  // namespace peal::comm
