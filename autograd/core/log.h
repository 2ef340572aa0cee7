// SPDX-License-Identifier: Apache-2.0
// Log lines for people, on stderr, each with the thread's tag ("[rank 1] ..."). PEAL_LOG chooses
// the least level shown: debug, info (default), warning or silent. A line is written in one piece,
// so that the lines of several ranks never mix. A warning in the same words is told once, by
// whichever rank of the node comes first, and counted (told_here.h). Thread safety: any thread.
#pragma once

#include <peal/autograd/core/error.h>

#include <cstdint>
#include <string_view>

namespace peal {

enum class LogLevel : std::uint8_t { debug, info, warning, error, silent };

void log_line(LogLevel level, std::string_view text);

template <class... Parts>
void log_info(const Parts&... parts) {
  log_line(LogLevel::info, concat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log_line(LogLevel::warning, concat(parts...));
}

template <class... Parts>
void log_error(const Parts&... parts) {
  log_line(LogLevel::error, concat(parts...));
}

}  // namespace peal
