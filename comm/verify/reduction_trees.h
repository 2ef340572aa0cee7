// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reduction trees of a symbolic run, each kept once, so that equal numbers are equal trees.
// Leaf r is rank r's contribution; an inner node combines two trees that share no contributor. The
// order of its two operands is not part of a node: a + b and b + a are the same bits. Numbers are
// of one run; hashes are equal for equal trees of any run.

#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::comm {

class ReductionTrees {
 public:
  static constexpr int none = -1;

  // The trees 0 .. world-1 are the leaves.
  explicit ReductionTrees(int world) : words_((static_cast<std::size_t>(world) + 63) / 64) {
    contributors_.resize(static_cast<std::size_t>(world) * words_);
    for (int r = 0; r < world; ++r) {
      row(r)[r / 64] |= std::uint64_t{1} << (r % 64);
      hashes_.push_back(mixed(0, static_cast<std::uint64_t>(r)));
    }
    trees_ = world;
  }

  std::uint64_t hash(int tree) const { return hashes_[static_cast<std::size_t>(tree)]; }

  bool has(int tree, int rank) const { return row(tree)[rank / 64] >> (rank % 64) & 1; }

  // The tree of both, or `none` if a rank contributes to both.
  int combine(int a, int b) {
    if (a > b) std::swap(a, b);
    const auto key = static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
    if (key == last_key_) return last_;
    const auto [known, fresh] = known_.try_emplace(key, none);
    if (fresh && disjoint(a, b)) {
      contributors_.resize(contributors_.size() + words_);
      for (std::size_t w = 0; w < words_; ++w) row(trees_)[w] = row(a)[w] | row(b)[w];
      const auto [less, more] = std::minmax({hash(a), hash(b)});
      hashes_.push_back(mixed(less, more));
      known->second = trees_++;
    }
    last_key_ = key;
    return last_ = known->second;
  }

 private:
  static std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
    mix(state, word);
    return state;
  }
  std::uint64_t* row(int tree) { return &contributors_[static_cast<std::size_t>(tree) * words_]; }
  const std::uint64_t* row(int tree) const {
    return &contributors_[static_cast<std::size_t>(tree) * words_];
  }
  bool disjoint(int a, int b) const {
    return std::equal(row(a), row(a) + words_, row(b), [](auto x, auto y) { return (x & y) == 0; });
  }

  std::size_t words_;                        // of a row
  std::vector<std::uint64_t> contributors_;  // a row a tree, a bit a rank
  std::vector<std::uint64_t> hashes_;        // of the trees
  int trees_ = 0;
  std::unordered_map<std::uint64_t, int> known_;
  std::uint64_t last_key_ = ~std::uint64_t{0};  // neighbours in a buffer mostly have equal trees
  int last_ = none;
};

}  // namespace peal::comm
