// SPDX-License-Identifier: Apache-2.0
// peal config: asks what a config file shall have, and writes it (accelerate config). Thread
// safety: one thread.
#pragma once

#include <peal/launch/tools/peal/config.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace peal::launch {

// Questions go to `out`, and the answers of `in` into the config; an empty one leaves what stands
// there. What cannot be is asked again, with why. Error where the answers end before the questions.
Config ask(Config config, std::istream& in, std::ostream& out);

// The command; its exit status.
int config_command(int argc, char** argv);

}  // namespace peal::launch
