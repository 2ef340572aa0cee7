// SPDX-License-Identifier: Apache-2.0
// Measured machines as JSON files: bench/calibrate writes them, peal-schedule reads them.
//
//   {"ranks": 2, "start": s, "latency": s, "link": [[bytes, s], ...],
//    "bus": [...], "reduce": [...], "copy": [...]}
//
// A file speaks of one node with that many ranks: more ranks share its cores and its memory, so
// another number of them is another machine.
#pragma once

#include <peal/comm/simulate/simulate.h>

#include <string>

namespace peal::launch {

// Error where the file cannot be written.
void save_machine(const std::string& path, const comm::Machine& machine);
// Error that names the file and what is wrong with it.
comm::Machine load_machine(const std::string& path);

}  // namespace peal::launch
