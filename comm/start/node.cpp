// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/node.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>

namespace peal::comm {

std::string machine_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (file >> machine) return machine;
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  return host;
}

// The root of the control groups that it sees.
std::string quota_identity() {
  struct stat root {};
  if (stat("/sys/fs/cgroup", &root) != 0) return "none";
  return concat(root.st_dev, ":", root.st_ino);
}

std::string node_identity() {
  std::string machine = machine_identity();
  struct stat shared {};
  if (stat("/dev/shm", &shared) == 0) machine += concat("/", shared.st_dev);
  if (const char* name = std::getenv("PEAL_NODE"); name != nullptr && *name != 0) {
    const std::string said = name;
    const bool spaces =
        std::ranges::any_of(said, [](unsigned char c) { return std::isspace(c) != 0; });
    PEAL_CHECK(!spaces, "PEAL_NODE: expected one word, got '", said, "'");
    machine += "/" + said;
  }
  return machine;
}

Topology topology_of(const std::vector<std::string>& identities) {
  std::map<std::string, int> numbers;
  Topology topology;
  for (const std::string& identity : identities) {
    const int next = static_cast<int>(numbers.size());
    topology.node.push_back(numbers.emplace(identity, next).first->second);
  }
  return topology;
}

}  // namespace peal::comm
