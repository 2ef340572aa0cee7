// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/tcp/frame.h>

#include <limits>

namespace peal::comm {
namespace {

constexpr std::uint32_t magic = 0x4c414550;  // "PEAL"

void put(std::array<std::byte, TcpFrame::size>& to, std::size_t at, std::uint64_t value,
         std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[at + i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint64_t get(std::span<const std::byte> from, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(from[at + i]);
  }
  return value;
}

std::uint64_t most_bytes(TcpFrame::Kind kind) {
  switch (kind) {
    case TcpFrame::Kind::whole:
      return TcpFrame::largest_whole;
    case TcpFrame::Kind::part:
      return TcpFrame::largest_part;
    case TcpFrame::Kind::failure:
      return TcpFrame::largest_text;
    case TcpFrame::Kind::offer:  // it is compared with the receive's, and nothing else
      return std::numeric_limits<std::uint64_t>::max();
    default:
      return 0;
  }
}

}  // namespace

std::array<std::byte, TcpFrame::size> encode(const TcpFrame& frame) {
  std::array<std::byte, TcpFrame::size> bytes{};
  put(bytes, 0, magic, 4);
  put(bytes, 4, static_cast<std::uint32_t>(frame.kind), 4);
  put(bytes, 8, frame.parcel.group, 8);
  put(bytes, 16, frame.parcel.channel.sequence, 8);
  put(bytes, 24, frame.parcel.channel.signature, 8);
  put(bytes, 32, frame.parcel.number, 8);
  put(bytes, 40, frame.parcel.bytes, 8);
  put(bytes, 48, static_cast<std::uint32_t>(frame.parcel.from), 4);
  put(bytes, 52, frame.frame, 4);
  put(bytes, 56, frame.met, 8);
  return bytes;
}

TcpFrame decode(std::span<const std::byte> bytes, std::uint32_t expected) {
  PEAL_CHECK(get(bytes, 0, 4) == magic,
             "it sent what is no frame of peal's: this version and that may differ");
  const auto kind = get(bytes, 4, 4);
  PEAL_CHECK(kind >= static_cast<std::uint32_t>(TcpFrame::Kind::whole) &&
                 kind <= static_cast<std::uint32_t>(TcpFrame::Kind::bye),
             "it sent a frame of kind ", kind, ", expected 1 to 8");
  TcpFrame frame{.kind = static_cast<TcpFrame::Kind>(kind),
                 .parcel = {.group = get(bytes, 8, 8),
                            .channel = {get(bytes, 16, 8), get(bytes, 24, 8)},
                            .number = get(bytes, 32, 8),
                            .bytes = get(bytes, 40, 8)},
                 .frame = static_cast<std::uint32_t>(get(bytes, 52, 4)),
                 .met = get(bytes, 56, 8)};
  PEAL_CHECK(frame.frame == expected, "it sent frame ", frame.frame, ", expected ", expected);
  PEAL_CHECK(frame.parcel.bytes <= most_bytes(frame.kind), "it sent a frame of kind ", kind,
             " with ", frame.parcel.bytes, " bytes, expected at most ", most_bytes(frame.kind));
  PEAL_CHECK(frame.kind != TcpFrame::Kind::part || frame.parcel.bytes > 0,
             "it sent a part of 0 bytes");
  const auto from = get(bytes, 48, 4);
  PEAL_CHECK(from <= static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()),
             "it sent a frame of rank ", from);
  frame.parcel.from = static_cast<std::int32_t>(from);
  return frame;
}

}  // namespace peal::comm
