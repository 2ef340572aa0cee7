// SPDX-License-Identifier: Apache-2.0
#pragma once

// Segments: a buffer that is copied to where a program runs, piece by piece, while the program
// already runs. A piece must be there before the first round that touches it, and can be taken back
// after the last one that does. So of a ring's buffer the first block comes first, and each block
// of the result goes back while the next one travels. A pure function of the program: the other
// ranks need not know. Where the ranks reach into each other's memory, all of it is wanted from the
// first round to the last.
//
// Thread safety: plain values.

#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace peal::comm {

struct Segment {
  Block block;  // elements
  // Rounds. What no round touches is wanted from the first and done after the last.
  std::size_t first = 0, last = 0;
  bool operator==(const Segment&) const = default;
};

// `buffer` (in or out) of `count` elements in segments of `size`, the last one smaller; one where
// the program has no rounds. In place, in == out + `in_place` elements, and what touches one
// touches the other.
std::vector<Segment> segments(const Program& program, Buffer buffer, std::int64_t count,
                              std::int64_t size, std::optional<std::int64_t> in_place);

}  // namespace peal::comm
