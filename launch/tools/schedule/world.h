// SPDX-License-Identifier: Apache-2.0
#pragma once

// A problem for a whole world, made of the few numbers of a command line.

#include <peal/comm/algorithms/world.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

using comm::World;

inline constexpr int f32 = 4;  // bytes

// n elements in all (of a rank, for all_to_all), cut evenly where there is a block a rank; nodes of
// `node_size` ranks side by side, 0 for one node.
World make_world(comm::Collective what, int ranks, std::int64_t n, int node_size = 0, int root = 0,
                 std::int64_t chunk = 0);

// Throw Error that lists what there is.
comm::Collective collective_named(std::string_view name);
comm::Entry entry_named(comm::Collective what, std::string_view name);
void check_supports(const comm::Entry& entry, int ranks);

// "1-4,8" is 1 2 3 4 8; "1K", "4M" and so on are powers of 1024; "1K-1M" doubles from one to the
// other.
std::vector<int> parse_ranks(std::string_view text);
std::vector<std::int64_t> parse_sizes(std::string_view text);
std::string bytes_text(std::int64_t bytes);
std::string seconds_text(double seconds);
std::string rate_text(double bytes_a_second);  // "1.5 GB/s", of 1e9 bytes

}  // namespace peal::launch
