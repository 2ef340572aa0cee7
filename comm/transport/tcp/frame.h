// SPDX-License-Identifier: Apache-2.0
// Frame: what stands before each thing that travels over a TcpLine: 64 bytes, little-endian, of
// fixed places. Nothing in it is believed before it is checked: of each kind the fields that it
// needs, and that frames follow one another without a gap. Thread safety: values.
//
//   at   bytes
//    0     4   "PEAL", 4 the kind, 8 the group, 16 and 24 the channel, 32 the message's number,
//   40     8   bytes of the message; of parts and of a failure's text, those that follow
//   48     4   the sender's rank in the group
//   52     4   the number of the frame: 0, 1, 2 ... in each direction
//   56     8   bytes of whole messages of the other direction that have met their receivers so far
#pragma once

#include <peal/comm/transport/mail/parcel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace peal::comm {

struct TcpFrame {
  enum class Kind : std::uint32_t {
    whole = 1,  // a message, which follows
    offer,      // one that could follow
    accept,     // it may
    part,       // so much of it follows
    end,        // that was all of it
    met,        // nothing but the last field
    failure,    // why the sender's group has failed: a text follows
    bye,        // the sender has let go of its last group
  };
  static constexpr std::size_t size = 64;
  // Most bytes that follow a frame.
  static constexpr std::size_t largest_whole = std::size_t{64} << 10,
                               largest_part = std::size_t{256} << 10, largest_text = 4096;

  Kind kind{};
  Parcel parcel{};  // but for its kind
  std::uint32_t frame = 0;
  std::uint64_t met = 0;

  // Bytes that follow.
  std::size_t content() const {
    return kind == Kind::whole || kind == Kind::part || kind == Kind::failure
               ? static_cast<std::size_t>(parcel.bytes)
               : 0;
  }
};

std::array<std::byte, TcpFrame::size> encode(const TcpFrame& frame);
// REQUIRES: TcpFrame::size bytes. `expected`: the number that the frame must have. Error for what
// is none.
TcpFrame decode(std::span<const std::byte> bytes, std::uint32_t expected);

}  // namespace peal::comm
