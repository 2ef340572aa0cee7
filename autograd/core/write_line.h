// SPDX-License-Identifier: Apache-2.0
// A line on stderr in one piece (an atomic write), so that lines of several ranks do not mix.
// Thread safety: any thread.
#pragma once

#include <unistd.h>

#include <string>

namespace peal {

inline void write_line(std::string line) {
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace peal
