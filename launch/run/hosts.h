// SPDX-License-Identifier: Apache-2.0
// Hosts of a job, and which of its ranks are on which (mpirun --host, by slot). Thread safety: free
// functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

struct Host {
  std::string name;
  int slots = 1;  // how many ranks it has room for
  bool operator==(const Host&) const = default;
};

// a,b:2,[fe80::1]:4: names or addresses, each with its slots where they are not 1. Error that names
// what is wrong.
std::vector<Host> parse_hosts(std::string_view text);

int slots(const std::vector<Host>& hosts);

// What this one calls itself.
std::string host_name();

// Ranks first ... first + count - 1 are on a host.
struct Share {
  int host;  // its place in the list
  int first, count;
  bool operator==(const Share&) const = default;
};

// Each host filled before the next has any. REQUIRES: there are as many slots.
std::vector<Share> place(int ranks, const std::vector<Host>& hosts);

// As one word of a shell, whatever it holds.
std::string shell_word(std::string_view word);

}  // namespace peal::launch
