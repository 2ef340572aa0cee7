// SPDX-License-Identifier: Apache-2.0
// Shell completion (bash-completion): a script that knows the commands and options that there are,
// for it asks each command of this build (command_line.h). Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

namespace peal::launch {

// For "bash" or "zsh", which reads the same script. Error for another. `commands`: those of peal.
std::string completion(const std::string& shell, const std::vector<std::string>& commands);

}  // namespace peal::launch
