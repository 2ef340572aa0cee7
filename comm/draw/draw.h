// SPDX-License-Identifier: Apache-2.0
#pragma once

// Draws the programs of a whole world, as text for a terminal or as a picture. Both show the same
// thing: a column for each rank, and time running down in rows. A message stands in the row in
// which its later side is ready, if every message takes one row; so what stands in a row can happen
// at the same time.
//
// Notation. The places where any step cuts a buffer divide it into blocks, numbered from 0: `3` is
// block 3 of `out`, `0-4` a run of blocks, `in2` and `s2` blocks of `in` and scratch. A buffer that
// is never cut goes by its name. In a rank's column
//   3>1     sends block 3 to rank 1           2<4    receives block 2 from rank 4
//   2+<4    adds what comes from 4 to block 2
//   2=in2   copies                            2+=s0  adds
// An empty message, or a signal and its await, has no block: >1 and <4. `3@2` is block 3 in the
// memory of rank 2; the picture has an arrow from whose memory is read to whose is written.
//
// A message that never meets its partner makes a drawing impossible: std::invalid_argument, and
// verify() says why. Or it is drawn as what it is: where a rank is stuck, `1>2?` or a red stub says
// what it waits for.

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace peal::comm {

enum class Stuck : std::uint8_t { refuse, show };

// As text: programs[r] of every rank r. Throws std::invalid_argument where a message never meets
// its partner, unless `stuck` is show.
std::string draw(std::span<const Program> programs, Stuck stuck = Stuck::refuse);

struct Sketch {
  Stuck stuck = Stuck::refuse;
  std::string_view note{};          // below the picture, in lines of its own
  const Topology* nodes = nullptr;  // frames round the ranks of a node
};

// A complete SVG file. Arrows run from sender to receiver, in the colour of their (first) block; a
// dashed arrow replaces what it meets, a full one adds to it. Squares are local steps.
std::string svg(std::span<const Program> programs, std::string_view title,
                const Sketch& sketch = {});

}  // namespace peal::comm
