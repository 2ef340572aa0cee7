// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who knows of what: vector clocks over signals, and with them the races of one-sided steps.
//
// Vocabulary. Each rank counts what it has done: 1 for having begun, and 1 for each round that it
// has completed. Its clock holds, for every rank, how much of that one's doing must have happened
// before its own present round. A signal carries the sender's clock at the begin of its round; the
// receiver has it from the round after its await on. Two accesses are ordered if the later one's
// clock covers the earlier one's round. Signals match in a fixed order, so the order does not
// depend on timing, and the accesses of one run stand for all.

#include <peal/comm/verify/well_formed.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::comm {

class HappensBefore {
 public:
  // Both outlive it.
  HappensBefore(std::span<const Program> programs, const Topology& nodes);

  // Whether any program touches memory that ranks share. If not, touch() does nothing.
  bool one_sided() const { return one_sided_; }

  // The rank begins this round, or ends with all rounds complete.
  void begin_round(int rank, std::size_t round);
  std::vector<std::int64_t> clock(int rank) const { return clocks_[std::size_t(rank)]; }
  // The rank's await in its present round has met a signal of this clock.
  void hear(int rank, const std::vector<std::int64_t>& clock);

  // Step p touches these elements of the owner's memory. Throws Rejected for a race, or if the
  // owner is not known to have begun, unless the memory `lives_on` between operations.
  void touch(const Place& p, int owner, std::int64_t begin, std::int64_t count, bool write,
             bool lives_on);
  // Throws Rejected if anybody may touch a rank's memory after its end, or a rank ends that has not
  // heard from all of its node.
  void check_ends() const;

 private:
  struct Access {
    Place place;
    std::int64_t begin, end;
    bool write, lives_on;
  };
  bool covers(int rank, const Place& earlier) const;
  // The rank knows in its present round that the other one has begun.
  bool has_heard(int rank, int other) const {
    return clocks_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(other)] > 0;
  }

  std::span<const Program> programs_;
  const Topology& nodes_;
  bool one_sided_ = false;
  std::vector<std::vector<std::int64_t>> clocks_, heard_;  // heard_: from the next round on
  std::vector<std::vector<Access>> accesses_;              // by owner
};

}  // namespace peal::comm
