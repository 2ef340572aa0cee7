// SPDX-License-Identifier: Apache-2.0
// Parcel: how a record of a mailroom's ring begins. Thread safety: a value.
#pragma once

#include <peal/comm/transport/shm/mailroom.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm {

struct Mailroom::Parcel {
  enum class Kind : std::int32_t { whole, offer, accept, part };
  std::uint64_t group = 0;
  Channel channel{};
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // of the message; of a part its own
  std::int32_t from = 0;    // in the group
  Kind kind{};

  std::size_t content() const {
    return kind == Kind::whole || kind == Kind::part ? static_cast<std::size_t>(bytes) : 0;
  }
  // Of whole lines of the cache.
  std::size_t record() const {
    const std::size_t bytes_here = sizeof(Parcel) + content();
    return bytes_here + (64 - bytes_here % 64) % 64;
  }
  void write(RingWriter& out, const std::byte* data) const {
    constexpr std::byte nothing[64] = {};
    out.write(this, sizeof(Parcel));
    if (data != nullptr) out.write(data, content());
    out.write(nothing, record() - sizeof(Parcel) - content());
    out.publish();
  }
};

}  // namespace peal::comm
