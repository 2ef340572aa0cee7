// SPDX-License-Identifier: Apache-2.0
// peal launch: peal-run (run/start.h) with a config file for what its command line leaves open
// (accelerate launch). What the ranks' programs then take as their defaults comes to them by
// PEAL_DEVICE and PEAL_PRECISION. Thread safety: the main thread.
#pragma once

#include <string>
#include <vector>

namespace peal::launch {

// The exit statuses are start_ranks()'s.
int launch_command(const std::vector<std::string>& arguments);
// Ranks of peal-test, which is beside this program.
int test_command(const std::vector<std::string>& arguments);

// The folder of this program's file, where its tools are.
std::string own_folder();

}  // namespace peal::launch
