// SPDX-License-Identifier: Apache-2.0
// Story: a schedule told round by round, what each rank does and what it then has.
//
// Thread safety: a story is of one thread; the rest is free functions without state.
#pragma once

#include <peal/comm/schedule/schedule.h>
#include <peal/launch/tools/schedule/world.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

// "sends out[4..5] to 3; adds what comes from 1 to out[2..3]"
std::string words(const comm::Round& round);

// Runs the programs on sets of contributors, and notes after each round of a rank what it holds.
class Story {
 public:
  static constexpr int most_ranks = 64;  // a contributor is a bit

  // REQUIRES: the programs are right, verify() says; both outlive it.
  Story(const World& world, const std::vector<comm::Program>& programs);

  // "out[0..1] sum of 0-2, out[2..3] of rank 1", or nothing.
  const std::string& after(int rank, std::size_t round) const {
    return ranks_[static_cast<std::size_t>(rank)].held[round];
  }

 private:
  struct Rank {
    std::vector<std::uint64_t> memory[comm::buffer_kinds];  // by Buffer
    std::size_t round = 0;
    int open = 0;
    std::vector<std::string> held;
  };
  using Posted = std::pair<int, const comm::Step*>;

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  void move(int to, int from, const comm::Span& dst, const comm::Span& src, bool adds);
  void begin_round(int r);
  void end_round(int r);
  void post(int r, const comm::Step& step);

  const std::vector<comm::Program>& programs_;
  std::vector<Rank> ranks_;
  std::deque<int> ready_;  // to begin their next round
  std::map<std::pair<int, int>, std::pair<std::deque<Posted>, std::deque<Posted>>> channels_;
};

}  // namespace peal::launch
