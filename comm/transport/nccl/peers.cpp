// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/transport/nccl/peers.h>

#include <nccl.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>

namespace peal::comm::nccl {
namespace {

std::string first_word_of(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// Atomics of one device on another's memory are NVLink's alone.
std::string link_between(int from, int to) {
  int reaches = 0, atomics = 0;
  if (cudaDeviceGetP2PAttribute(&reaches, cudaDevP2PAttrAccessSupported, from, to) != cudaSuccess ||
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) !=
          cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return "an unknown link";
  }
  return atomics != 0 ? "NVLink" : reaches != 0 ? "PCIe" : "the host's memory";
}

}  // namespace

std::string pci_of(Device device) {
  char id[32] = {};
  if (cudaDeviceGetPCIBusId(id, sizeof id, device.index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return "";
  }
  std::string text = id;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Peer this_peer(Device device) {
  Peer peer;
  const ncclResult_t result = ncclGetVersion(&peer.version);
  if (result != ncclSuccess) peer.problem = concat("ncclGetVersion: ", ncclGetErrorString(result));
  const std::string warning = version_warning(peer.version, NCCL_VERSION_CODE);
  if (result == ncclSuccess && !warning.empty()) log_warning(warning);
  char name[256] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  peer.host = concat(name, " (boot ", first_word_of("/proc/sys/kernel/random/boot_id"), ")");
  peer.gpu = concat(device, ", ", peal::describe(device).name);
  peer.pci = pci_of(device);
  peer.numa = first_word_of(concat("/sys/bus/pci/devices/", peer.pci, "/numa_node"));
  return peer;
}

// Lines; the id, which is any bytes, comes last.
std::string pack(const Peer& peer) {
  std::string text = concat(peer.version, "\n");
  for (const std::string* line :
       {&peer.host, &peer.gpu, &peer.pci, &peer.numa, &peer.options, &peer.problem})
    text += *line + "\n";
  return text + peer.id;
}

Peer unpack(const std::string& text) {
  Peer peer;
  std::size_t at = 0;
  const auto line = [&] {
    const std::size_t end = text.find('\n', at);
    PEAL_CHECK(end != std::string::npos, "[nccl] a rank says ", text.size(),
               " bytes that are no peer's: start the same build of peal on every rank");
    const std::string found = text.substr(at, end - at);
    at = end + 1;
    return found;
  };
  std::istringstream(line()) >> peer.version;
  for (std::string* each :
       {&peer.host, &peer.gpu, &peer.pci, &peer.numa, &peer.options, &peer.problem})
    *each = line();
  peer.id = text.substr(at);
  return peer;
}

std::string version_name(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string version_warning(int library, int header) {
  if (library >= header) return "";
  return concat("[nccl] the library is NCCL ", version_name(library), ", and peal was built with ",
                version_name(header),
                ", which is newer: what the library does not know is left out; see which "
                "libnccl.so.2 is found (ldd, LD_LIBRARY_PATH)");
}

std::string too_old(int library, const NcclOptions& options) {
  const bool zero = options.cta_policy == CtaPolicy::zero;
  const int needed = zero ? 22800 : 22700;
  if (library >= needed) return "";
  return concat("the library is NCCL ", version_name(library), ", expected ", version_name(needed),
                " at least, which has ", zero ? "CtaPolicy::zero" : "the windows that peal calls",
                ": see which libnccl.so.2 is found (ldd, LD_LIBRARY_PATH)");
}

std::string describe(const NcclOptions& options) {
  const auto text = [](const auto& value) {
    return value ? concat(static_cast<int>(*value)) : std::string("NCCL's");
  };
  return concat("cta_policy ", text(options.cta_policy), ", min_ctas ", text(options.min_ctas),
                ", max_ctas ", text(options.max_ctas), ", symmetric_memory ",
                options.symmetric_memory ? "on" : "off");
}

std::string obstacle(const std::vector<Peer>& peers) {
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (!peers[r].problem.empty()) return concat("rank ", r, ": ", peers[r].problem);
  }
  for (std::size_t r = 1; r < peers.size(); ++r) {
    if (peers[r].options != peers[0].options) {
      return concat("rank 0 has the options ", peers[0].options, ", rank ", r, " has ",
                    peers[r].options, ": give use_nccl() the same on every rank");
    }
    if (peers[r].version == peers[0].version) continue;
    return concat("rank 0 (", peers[0].host, ") has NCCL ", version_name(peers[0].version),
                  ", rank ", r, " (", peers[r].host, ") has ", version_name(peers[r].version),
                  ": NCCL joins ranks of one version alone; see which libnccl.so.2 each finds "
                  "(ldd, LD_LIBRARY_PATH)");
  }
  return "";
}

std::string links(const std::vector<Peer>& peers, int rank, Device device) {
  const Peer& own = peers[static_cast<std::size_t>(rank)];
  std::map<std::string, std::string> ranks;  // by link
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const Peer& peer = peers[r];
    if (static_cast<int>(r) == rank || peer.host != own.host) continue;
    std::string link = "an unknown link";
    int other = 0;
    if (peer.pci == own.pci) {
      link = "the same GPU";
    } else if (!peer.pci.empty() &&
               cudaDeviceGetByPCIBusId(&other, peer.pci.c_str()) == cudaSuccess) {
      link = link_between(device.index, other);
    } else {
      static_cast<void>(cudaGetLastError());  // CUDA_VISIBLE_DEVICES hides it
    }
    std::string& list = ranks[link];
    list += concat(list.empty() ? "" : ", ", r);
  }
  std::string text;
  for (const auto& [link, list] : ranks)
    text += concat(text.empty() ? "" : "; ", link, " to ", list);
  return text;
}

std::vector<std::string> topology(const std::vector<Peer>& peers,
                                  const std::vector<std::string>& links) {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    const Peer& peer = peers[r];
    lines.push_back(concat("[nccl] rank ", r, " on ", peer.host, ": ", peer.gpu, ", PCI ",
                           peer.pci.empty() ? "unknown" : peer.pci, ", NUMA node ",
                           peer.numa.empty() ? "unknown" : peer.numa, links[r].empty() ? "" : "; ",
                           links[r], "; NCCL ", version_name(peer.version)));
  }
  return lines;
}

}  // namespace peal::comm::nccl
