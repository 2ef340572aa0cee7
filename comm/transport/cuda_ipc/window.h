// SPDX-License-Identifier: Apache-2.0
// Window of a device: peer-mapped memory, what comm/memory/window.h is on the CPU: the memory of
// one rank of a group that the others' kernels reach into: signals, places of buffers, rooms, and
// the boxes for mail. Each block of threads has those of its own, for it works with the same block
// of the others alone (flat_program.h), so no block waits for another of its own kernel. A block's
// room has two halves, for operations of even and odd numbers in turn. Why two are enough is said
// of rooms in schedule.h, and proven of every program. Thread safety: kernels of one rank and group
// follow one another in one stream.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/comm/schedule/flat_program.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

inline constexpr int most_ranks = FlatProgram::most_ranks, most_blocks = 64;

using Count = unsigned long long;

// Where a rank's buffers lie, for the others: a segment's number (segment.h), from 1, and a place
// in it, bytes; 0: where not all can reach.
using Location = Count;
inline constexpr int place_bits = 44;
PEAL_HOST_DEVICE inline Count segment_of(Location location) { return location >> place_bits; }
PEAL_HOST_DEVICE inline Count place_in_segment(Location location) {
  return location & ((Count{1} << place_bits) - 1);
}
struct Lie {
  Location in, out;
};

// The beginning of a window. Zeroed before anybody enters.
struct Window {
  // Written by the others.
  Count signals[most_blocks][most_ranks];  // of that rank: how many << 16 | signature
  Lie lies[2][most_blocks][most_ranks];    // of operations of even and odd numbers
  Count delivered[most_ranks][2];          // in a box (mail.h): its number << 16 | signature
  Count taken[most_ranks];                 // of this rank's parcels, by that rank
  // This rank's own.
  Count operations[most_blocks];
  Count sent[most_blocks][most_ranks], heard[most_blocks][most_ranks];  // signals
  Count mailed[most_ranks], got[most_ranks];                            // parcels
  Count direct;  // collectives on tensors where they lie
};
inline constexpr std::size_t halves_at = (sizeof(Window) + 255) / 256 * 256;  // bytes

// What a kernel knows of the group.
struct Group {
  std::byte* windows[most_ranks];  // by rank, as this rank sees them
  unsigned* ended;                 // not 0: the host wants kernels to end
  std::int64_t half, parcel;       // bytes, multiples of 16
  int rank, world, blocks;         // most blocks of a kernel
  unsigned signature;              // of the operation, 16 bits

  PEAL_HOST_DEVICE std::size_t mail_at() const {
    return halves_at + static_cast<std::size_t>(blocks) * 2 * static_cast<std::size_t>(half);
  }
  std::size_t bytes() const {
    return mail_at() + static_cast<std::size_t>(world) * 2 * static_cast<std::size_t>(parcel);
  }
};

}  // namespace peal::comm::ipc
