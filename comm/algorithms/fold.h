// SPDX-License-Identifier: Apache-2.0
#pragma once

// Folding a world onto a power of two, for algorithms whose partners differ in one bit.
//
// Vocabulary. Let q be the largest power of two with q <= p. q ranks take part, numbered by an
// index 0 .. q-1; the p - q others are folded: of each of the first p - q pairs of ranks (0,1),
// (2,3), .. the even one gives its numbers to the odd one before the exchange, and gets the result
// after it. That costs two rounds, in which a whole message travels each time.

#include <peal/comm/schedule/schedule.h>

#include <bit>

namespace peal::comm {

struct Fold {
  int q;       // ranks that take part
  int folded;  // ranks that do not

  explicit Fold(int world)
      : q(static_cast<int>(std::bit_floor(static_cast<unsigned>(world)))), folded(world - q) {}

  bool in_pair(int rank) const { return rank < 2 * folded; }
  bool gives(int rank) const { return in_pair(rank) && rank % 2 == 0; }      // to rank + 1
  bool stands_in(int rank) const { return in_pair(rank) && rank % 2 == 1; }  // for rank - 1
  int index(int rank) const { return in_pair(rank) ? rank / 2 : rank - folded; }
  int rank_at(int index) const { return index < folded ? 2 * index + 1 : index + folded; }
};

}  // namespace peal::comm
