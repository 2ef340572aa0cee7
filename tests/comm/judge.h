// SPDX-License-Identifier: Apache-2.0
#pragma once

// The judge of the verifier: runs the programs of a world on numbers, one small move at a time, in
// an order drawn at random, and looks whether the result is right. It shares no idea with the
// verifier but schedule.h.
//
// A rank is a buffer with margins of canaries. A message begins when both sides are posted
// (rendezvous), a round when the one before is done. Whatever is under way - messages and local
// steps of any rank - goes on by pieces in any order; a piece is read where it lies, or the whole
// source is read first, as a transport may do either.
//
// Programs that touch the memory of others are run several times, one operation after the other
// without a barrier between; each uses the half of the room that the one before has not.
//
// A rank has nothing to contribute before it begins, and uses its memory for something else once it
// has ended; so others that touch it too early or too late are found out. Some runs have a rank
// that does not come until all others stand still, or whose moves go on last.
//
// Numbers come in pairs. One half is added; the result must be the true sum. The other is combined
// by a commutative function that is not associative; it must be equal on all ranks that hold it.
//
// A good verdict is a sample, not a proof; a bad one is a fact.

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <span>
#include <string>

namespace peal::comm::testing {

struct Judgement {
  bool good = false;
  std::string why;  // if bad
};

// Runs several interleavings drawn from the seed.
Judgement judge(const Problem& problem, std::span<const Program> programs, bool in_place,
                std::uint64_t seed);

}  // namespace peal::comm::testing
