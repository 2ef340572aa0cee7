// SPDX-License-Identifier: Apache-2.0
// Node identity: which ranks share a machine, and on it the memory that processes share. Two
// containers on one machine that see different /dev/shm are two nodes. Thread safety: any thread.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <string>
#include <vector>

namespace peal::comm {

// One word, equal on two processes exactly where they run on one machine, whose cores they share:
// its boot id.
std::string machine_identity();

// One word, equal on two processes that have one quota of the machine's time: their container's.
std::string quota_identity();

// One word, equal on two processes exactly where they are on one node: the machine's boot id, the
// file system of /dev/shm, and what PEAL_NODE says, by which ranks of one machine can pretend to be
// on several (never the other way). Error where that has spaces.
std::string node_identity();

// Who is on which node, from the identities of all ranks: nodes are numbered as they come.
Topology topology_of(const std::vector<std::string>& identities);

}  // namespace peal::comm
