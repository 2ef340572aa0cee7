// SPDX-License-Identifier: Apache-2.0
// What every page of peal-schedule view has: a file to be written to, and the command that asked
// for it. Thread safety: none; it writes a file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct PageOptions {
  std::string output;   // file
  std::string command;  // that asks for the page, which says so
};

// page() of the views as that file, and a line that says so. Error where it cannot be written.
void write_page(const PageOptions& options, const std::string& title, nlohmann::json views);

}  // namespace peal::launch
