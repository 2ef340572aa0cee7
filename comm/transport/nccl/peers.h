// SPDX-License-Identifier: Apache-2.0
// Peers: what ranks tell each other before NCCL joins them: its version, on which a rank's NCCL and
// another's must agree, and where the rank's GPU is (PCI, NUMA node, links to the others), which
// says why a collective is as fast as it is. Pure, but for pci_of(), this_peer() and links().
// Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/comm/transport/nccl/options.h>

#include <string>
#include <vector>

namespace peal::comm::nccl {

struct Peer {
  int version = 0;        // ncclGetVersion()
  std::string host;       // name, and boot: containers may share a name
  std::string gpu;        // cuda:0, NVIDIA H100 80GB HBM3
  std::string pci;        // 0000:1b:00.0
  std::string numa;       // of the GPU; -1 where the machine has one node
  std::string options{};  // of its program, in words
  std::string problem;    // what keeps it from NCCL
  std::string id{};       // rank 0's ncclUniqueId, as bytes
};

// As /sys/bus/pci/devices has it; empty where CUDA does not say.
std::string pci_of(Device device);
Peer this_peer(Device device);
std::string pack(const Peer& peer);
Peer unpack(const std::string& text);

// 22809: 2.28.9.
std::string version_name(int version);
// Empty, or a warning that names both: a library that is older than the header that peal was built
// with.
std::string version_warning(int library, int header);
// Empty, or why that library has not what peal calls, or what the options ask for.
std::string too_old(int library, const NcclOptions& options);
// In words, for ranks to compare.
std::string describe(const NcclOptions& options);
// What keeps these ranks, together, from NCCL: a rank's problem, or versions or options that
// differ. Empty: nothing.
std::string obstacle(const std::vector<Peer>& peers);

// What the rank's GPU has to those of other ranks on its host: "NVLink to 1, 2; PCIe to 3".
std::string links(const std::vector<Peer>& peers, int rank, Device device);
// A line a rank.
std::vector<std::string> topology(const std::vector<Peer>& peers,
                                  const std::vector<std::string>& links);

}  // namespace peal::comm::nccl
