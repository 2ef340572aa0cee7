// SPDX-License-Identifier: Apache-2.0
// What a wire (simulate/wire.h) does to the messages of ranks that are threads. Thread safety:
// values.
#pragma once

#include <peal/comm/simulate/wire.h>
#include <peal/comm/transport/transport.h>

#include <cstdint>

namespace peal::comm {

// Error that names the field: negative times, rates that are not above 0, ranks beyond the world.
void check(const Wire& wire, int world);

// A message as the wire knows it.
struct Transfer {
  std::uint64_t group = 0;
  Channel channel{};
  int from = 0, to = 0;         // ranks of the world
  std::int64_t in_channel = 0;  // how many went before it: between these two in this channel,
  std::int64_t on_link = 0;     // and on the link in all
  std::size_t bytes = 0;
};

// What the wire does to it.
struct Fate {
  double link = 0, port = 0;  // seconds for which it occupies each
  double late = 0;            // seconds from its leaving to its arrival
  bool dropped = false;
};
Fate fate(const Wire& wire, const Transfer& transfer);

}  // namespace peal::comm
