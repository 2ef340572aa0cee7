// SPDX-License-Identifier: Apache-2.0
#pragma once

// Proves, or refutes, that the programs of a whole world solve a problem. It runs them on symbols.
//
// Vocabulary. A cell is one element of a rank's memory. It holds nothing (undefined), or an element
// of the problem together with a reduction tree: a leaf names the rank that contributed, an inner
// node the two trees that were combined. Trees are kept once each, so equal numbers are equal
// trees. The order of the two operands is not part of a tree, since a + b and b + a are the same
// bits in every type we reduce; nothing else is assumed about a reduction, not even associativity.
//
// Accepted programs, run on any transport that keeps the rules of schedule.h, have these
// properties:
//   - every step is well formed: ranks, buffers and ranges exist, unused fields are unused, `in` is
//     not written, empty messages stand in a barrier only;
//   - no two steps of a round touch the same element, unless both read it;
//   - every message meets its partner, in order and in size, and no set of ranks waits for each
//     other, even if no send is ever buffered;
//   - nothing undefined is read; only equal elements of different contributors are combined;
//   - at the end every element of `out` is the right element with every contribution exactly once
//     (for a reduction), or the copy from the right rank; a barrier: each rank has heard of all;
//   - all replicas of an element are results of the same tree, and so have the same bits.
// Since rounds have no races and messages match in a fixed order, the result does not depend on
// timing: one run stands for all.
//
// One-sided steps (a span with an owner, signal, await), besides:
//   - of two accesses to the same element, unless both read, one happens before the other by a
//   chain
//     of signals, or by the order of rounds in their rank;
//   - no rank's memory but its room is touched by another that does not know it has begun, or that
//     it does not know to be done when it ends;
//   - they stay within a node, whose ranks share memory;
//   - each rank has heard from all of its node when it ends: so the halves of the room are free in
//     their turns;
//   - every signal has its await. Messages order nothing here: a transport may buffer them.
//
// Cost: a cell (16 bytes) an element of every buffer of every rank; time linear in elements moved.

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::comm {

enum class Aliasing : std::uint8_t { out_of_place, in_place };

struct Verdict {
  bool ok = false;
  std::string why;  // if not ok: rank, round and step, what was expected and what came
  // If ok: every element is reduced by the same tree, so that results do not depend on where in the
  // buffer a value stands. Deterministic mode admits no other plans.
  bool one_tree = false;
  // Of that tree, a hash; equal in two verdicts where it is the same tree. 0: there is not one.
  std::uint64_t tree = 0;
  // Whether it is right.
  explicit operator bool() const { return ok; }
};

// programs[r] is rank r's; problem.rank is not looked at. Rounds and steps are counted from 0 in
// messages. Throws std::invalid_argument if the problem itself is not valid, or has no in-place
// form.
Verdict verify(const Problem& problem, std::span<const Program> programs, Aliasing aliasing);

// What stands in an element of a rank's `out`: which element of the problem it is, as the verifier
// numbers them (through the whole result, or through the sender's `in` for all_to_all), and the
// ranks whose contributions it has, ascending; none where nothing was written.
struct Held {
  std::int64_t element = 0;
  std::vector<int> contributors;
  bool operator==(const Held&) const = default;
};
// By rank: its `out`, as the run left it, or as far as it came where the verdict is no.
using Contents = std::vector<std::vector<Held>>;
Verdict verify(const Problem& problem, std::span<const Program> programs, Aliasing aliasing,
               Contents& contents);

}  // namespace peal::comm
