// SPDX-License-Identifier: Apache-2.0
// Room: a peer-mapped buffer: the memory of one rank of a group that the others' kernels reach
// into: where blocks of threads of different ranks meet (meet.h), the halves through which they
// exchange data, and the boxes for mail. In a room a block has its own two *halves*, used in turn:
// who reads a peer's half need not meet afterwards, for the peer cannot be at this half again
// before everybody has met about the other. Thread safety: kernels of one rank and group follow one
// another in one stream.
#pragma once

#include <peal/autograd/core/half.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

inline constexpr int most_ranks = 16, most_blocks = 64;

using Count = unsigned long long;

// What a block says before it first reaches into tensors: where they lie (segment.h), so that the
// others can.
struct Place {
  Count segment, in, out;  // bytes from the segment's begin; segment 0: in none that all can reach
};

// The beginning of a room. Zeroed before anybody enters.
struct Room {
  // Written by the others.
  Count arrived[most_blocks][most_ranks];  // meetings << 16 | signature
  Place places[most_blocks][most_ranks];
  // Of that rank's parcels the one in this place of its box (mail.h): its number << 16 | signature.
  Count delivered[most_ranks][2];
  Count taken[most_ranks];  // of this rank's parcels, by that rank
  // This rank's own.
  Count meetings[most_blocks], turns[most_blocks];
  Count sent[most_ranks], got[most_ranks];
  Count in_place;  // all-reduces of tensors where they lie
};
inline constexpr std::size_t halves_at = (sizeof(Room) + 255) / 256 * 256;  // bytes

// What a kernel knows of the group.
struct Group {
  std::byte* rooms[most_ranks];  // by rank, as this rank sees them
  unsigned* ended;               // not 0: the host wants kernels to end
  std::int64_t half, parcel;     // bytes, multiples of 16
  int rank, world, blocks;       // most blocks of a kernel
  unsigned signature;            // of the operation, 16 bits

  PEAL_HOST_DEVICE std::size_t mail_at() const {
    return halves_at + static_cast<std::size_t>(blocks) * 2 * static_cast<std::size_t>(half);
  }
  std::size_t bytes() const {
    return mail_at() + static_cast<std::size_t>(world) * 2 * static_cast<std::size_t>(parcel);
  }
};

}  // namespace peal::comm::ipc
