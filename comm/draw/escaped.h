// SPDX-License-Identifier: Apache-2.0
#pragma once

// Escaping: a text as it stands between the tags of an SVG picture.
//
// Thread safety: a free function without state.

#include <string>
#include <string_view>

namespace peal::comm {

inline std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace peal::comm
