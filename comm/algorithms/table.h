// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every algorithm of peal, by name: what tests, benchmarks, PEAL_ALGO and the process group choose
// from. Within a collective, the first entry is the safe default.

#include <peal/comm/algorithms/entry.h>

#include <span>
#include <string_view>
#include <vector>

namespace peal::comm {

// Every algorithm of every collective; of each collective the first serves any number of ranks.
std::span<const Entry> algorithms();

// Those that touch the memory of other ranks, and so run where the ranks share memory alone.
std::span<const Entry> one_sided_algorithms();

// Both.
std::vector<Entry> all_algorithms();

// The entry of that name among all, or nullptr.
const Entry* find(Collective what, std::string_view name);

// The program of problem.rank, with the arguments checked: throws std::invalid_argument if the
// problem is not one (validate), is another collective's, or has a world that the algorithm doesn't
// support.
Program plan(const Entry& entry, const Problem& problem);

}  // namespace peal::comm
