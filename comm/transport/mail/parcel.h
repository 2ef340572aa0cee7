// SPDX-License-Identifier: Apache-2.0
// Parcel: what one rank's mailroom tells another's of a message (a message's envelope, in MPI's
// words). How it travels is the line's own. Thread safety: a value.
#pragma once

#include <peal/comm/transport/transport.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm {

struct Parcel {
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
};

}  // namespace peal::comm
