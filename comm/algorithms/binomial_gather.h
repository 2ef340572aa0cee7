// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gather up, and scatter down, a binomial tree: for small blocks, since a block travels through up
// to log2(p) ranks.
//
// Vocabulary as in binomial_broadcast.h: a rank's place is its distance from the root, the lowest
// bit set in a place is its reach s, and place v is the root of the subtree v .. v+s-1.
//
// Gather. Place v collects the blocks of its subtree, first from v+1, then from v+2, v+4, .., each
// of which has finished, and sends all of them to v - s. Scatter is gather backwards. The blocks of
// a subtree lie one after the other in scratch. In the root's buffer, ordered by rank, a subtree
// may pass the end: then it travels as two messages of the same round, on all its way.
//
// Cost, n elements in all: ceil(log2 p) rounds at the root, which receives (sends) n(p-1)/p.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Performance Computing Applications 19 (2005).

#include <peal/comm/algorithms/entry.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace peal::comm {

class BinomialSubtrees {
 public:
  // `ordered`: the root's buffer.
  BinomialSubtrees(const Problem& problem, Buffer ordered)
      : root_(problem.root),
        place_(wrap(problem.rank - problem.root, problem.world)),
        ordered_(ordered),
        by_rank_(problem.counts),
        by_place_(turned(problem)) {
    while (reach_ < problem.world && (place_ & reach_) == 0) reach_ *= 2;
  }

  int place() const { return place_; }
  int reach() const { return reach_; }
  int rank_at(int place) const { return wrap(place + root_, by_rank_.size()); }
  // Where the blocks of the subtree under a place stand at this rank, in one or two pieces.
  std::vector<Span> pieces(int place, int reach) const {
    const int n = std::min(reach, by_rank_.size() - place);
    std::int64_t at = by_place_[place].at - by_place_[place_].at;
    std::vector<Span> all;
    for (const Block& b : by_rank_.run(rank_at(place), n)) {
      all.push_back(place_ == 0 ? Span{self, ordered_, b.at, b.count} : scratch({at, b.count}));
      at += b.count;
    }
    return all;
  }
  std::int64_t elements() const {
    return by_place_.range(place_, std::min(reach_, by_rank_.size() - place_)).count;
  }

 private:
  static std::vector<std::int64_t> turned(const Problem& problem) {
    std::vector<std::int64_t> counts(problem.counts.begin(), problem.counts.end());
    std::ranges::rotate(counts, counts.begin() + problem.root);
    return counts;
  }
  int root_, place_, reach_ = 1;
  Buffer ordered_;
  Blocks by_rank_, by_place_;
};

inline Program binomial_gather(const Problem& problem) {
  const BinomialSubtrees tree(problem, Buffer::out);
  const int place = tree.place(), p = problem.world;
  Program program{place == 0 ? 0 : tree.elements(), {}};
  const Span own = tree.pieces(place, 1)[0];
  add(program, {copy(own, in({0, own.count}))});
  for (int s = 1; s < p; s *= 2) {
    Round round;
    if ((place & s) != 0) {
      for (const Span& span : tree.pieces(place, s)) {
        round.push_back(send(tree.rank_at(place - s), span));
      }
      add(program, std::move(round));
      break;
    }
    if (place + s >= p) continue;
    for (const Span& span : tree.pieces(place + s, s)) {
      round.push_back(recv(tree.rank_at(place + s), span));
    }
    add(program, std::move(round));
  }
  return program;
}

inline constexpr Entry binomial_gather_entry{
    .what = Collective::gather,
    .name = "binomial",
    .make = binomial_gather,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.up, t.block * t.subtree, t.block * t.others, 0}, t.equal};
    },
};

inline Program binomial_scatter(const Problem& problem) {
  const BinomialSubtrees tree(problem, Buffer::in);
  const int place = tree.place(), p = problem.world, reach = tree.reach();
  Program program{place == 0 ? 0 : tree.elements(), {}};
  if (place != 0) {
    Round round;
    for (const Span& span : tree.pieces(place, reach)) {
      round.push_back(recv(tree.rank_at(place - reach), span));
    }
    add(program, std::move(round));
  }
  for (int half = reach / 2; half > 0; half /= 2) {
    if (place + half >= p) continue;
    Round round;
    for (const Span& span : tree.pieces(place + half, half)) {
      round.push_back(send(tree.rank_at(place + half), span));
    }
    add(program, std::move(round));
  }
  const Span own = tree.pieces(place, 1)[0];
  add(program, {copy(out({0, own.count}), own)});
  return program;
}

inline constexpr Entry binomial_scatter_entry{
    .what = Collective::scatter,
    .name = "binomial",
    .make = binomial_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.up, t.block * t.others, t.block * t.subtree, 0}, t.equal};
    },
};

}  // namespace peal::comm
