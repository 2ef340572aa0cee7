// SPDX-License-Identifier: Apache-2.0
// A line of a program's own output on stdout, at once, also where that goes to a file; for what
// `tell` of the Learner and of the Trainer gets, which is rank 0's. Thread safety: as of stdout.
#pragma once

#include <cstdio>
#include <string>

namespace peal::launch {

// The text, and the end of its line.
inline void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace peal::launch
