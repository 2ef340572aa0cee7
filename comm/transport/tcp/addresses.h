// SPDX-License-Identifier: Apache-2.0
// Addresses of hosts: by which ones the ranks of other nodes may reach this process, and in which
// order it tries theirs. Thread safety: pure, but for what the system says.
#pragma once

#include <string>
#include <vector>

namespace peal::comm {

// Those of this machine's devices, each with its net ("10.0.0.4/24"), or of the one that
// PEAL_SOCKET_IFNAME names: Error where it has none. Without it the loopback device is not one.
std::vector<std::string> own_addresses();

// The others' addresses, without their nets: first those that lie in a net of this machine's, last
// what this machine has as well, as a bridge of containers, whose address is the same everywhere.
std::vector<std::string> in_order(const std::vector<std::string>& theirs,
                                  const std::vector<std::string>& own);

}  // namespace peal::comm
