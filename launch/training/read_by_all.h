// SPDX-License-Identifier: Apache-2.0
// Files that all ranks of a program read. Thread safety: a pure function.
#pragma once

#include <peal/autograd/core/error.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace peal::launch {

// What each of `world` ranks is about to read. Error where there are several and it is a pipe, of
// which each would get a part.
inline void check_all_read(const std::string& path, int world) {
  std::error_code none;  // who reads it says what there is to say
  PEAL_CHECK(world == 1 || !std::filesystem::is_fifo(path, none), path,
             ": expected a file that each of the ", world,
             " ranks can read, got a pipe, of which each would get a part; write it to a file "
             "first");
}

}  // namespace peal::launch
