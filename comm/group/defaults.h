// SPDX-License-Identifier: Apache-2.0
// Default algorithms: the rules for a machine that nobody has measured, by ranks and nodes. What
// they rest on is in docs/benchmarks.md. A pure function.
#pragma once

#include <peal/comm/group/selection.h>

namespace peal::comm {

// For ranks that share memory, or exchange messages. `crowded`: some have to give way to others,
// for there are more than cores.
Rules default_rules(int world, int nodes, bool shared, bool crowded);

}  // namespace peal::comm
