// SPDX-License-Identifier: Apache-2.0
// Label: what a collective is for. The text is for errors and traces: "bucket 3: fc1.weight". The
// tag is for the ranks: collectives of different tags never meet, however alike they are otherwise,
// and ranks that call them in different orders are told so. Thread safety: a value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

namespace peal::comm {

struct Label {
  Label() = default;
  // The text stays the caller's, and is read during the call alone.
  template <std::convertible_to<std::string_view> Text>
  Label(const Text& text, std::uint64_t tag = 0)  // NOLINT: meant as a conversion
      : text(text), tag(tag) {}

  std::string_view text;
  std::uint64_t tag = 0;  // equal on all ranks
};

}  // namespace peal::comm
