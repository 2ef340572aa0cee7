// SPDX-License-Identifier: Apache-2.0
// What the page shows of the algorithms of a collective over sizes and ranks, as JSON: by
// algorithm, number of ranks and size, what its closed form counts for the rank with most, [rounds,
// sent, added] in elements, or null where it has no plan. What that takes on a machine the page
// computes itself, since there the reader turns the machine. Left out are those in shared memory:
// they send nothing.
//
// Thread safety: a pure function.
#pragma once

#include <peal/comm/schedule/schedule.h>
#include <peal/comm/simulate/simulate.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace peal::launch {

// `machine`: where the page begins. Every rank is a node of its own.
nlohmann::json compare_json(comm::Collective what, const std::vector<int>& ranks,
                            const std::vector<std::int64_t>& bytes, const comm::Machine& machine);

}  // namespace peal::launch
