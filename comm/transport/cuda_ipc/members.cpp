// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/control/control.h>
#include <peal/comm/transport/cuda_ipc/members.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

namespace peal::comm::ipc {

Member this_process(Device device) {
  Member member;
  char name[256] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  member.host = concat(name, " (boot ", boot, ")");
  member.process = concat(getpid(), " of ", pid_namespace());
  const DeviceDescription description = describe(device);
  member.device = description.uuid;
  member.processors = concat(description.multiprocessors);
  return member;
}

// The handle, and lines; the problem, which may have several, comes last.
std::string pack(const Member& member) {
  std::string text(member.handle.reserved, sizeof member.handle.reserved);
  for (const std::string* line : {&member.host, &member.process, &member.device, &member.processors,
                                  &member.options, &member.problem}) {
    text += *line + "\n";
  }
  return text;
}

Member unpack(const std::string& text) {
  Member member;
  constexpr std::size_t size = sizeof member.handle.reserved;
  PEAL_CHECK(text.size() >= size, "cuda_ipc: a member of ", text.size(), " bytes");
  std::memcpy(member.handle.reserved, text.data(), size);
  std::istringstream lines(text.substr(size));
  for (std::string* line :
       {&member.host, &member.process, &member.device, &member.processors, &member.options}) {
    std::getline(lines, *line);
  }
  std::getline(lines, member.problem, '\0');
  while (member.problem.ends_with('\n')) member.problem.pop_back();
  return member;
}

std::string obstacle(const std::vector<Member>& members) {
  const Member& first = members.front();
  for (std::size_t r = 0; r < members.size(); ++r) {
    const Member& other = members[r];
    if (!other.problem.empty()) return concat("rank ", r, ": ", other.problem);
    if (other.host != first.host) {
      return concat("ranks 0 and ", r, " are on ", first.host, " and ", other.host,
                    "; CUDA shares memory within a machine alone");
    }
    if (other.options != first.options) {
      return concat("the ranks do not agree: rank 0 has ", first.options, "; rank ", r, " has ",
                    other.options);
    }
    for (std::size_t q = 0; q < r; ++q) {
      if (members[q].process == other.process) {
        return concat("ranks ", q, " and ", r,
                      " are threads of one process; CUDA shares memory between processes alone, so "
                      "start a process for each rank");
      }
    }
  }
  return {};
}

int blocks_beside(const std::vector<Member>& members) {
  std::map<std::string, int> ranks;  // by device
  int processors = std::numeric_limits<int>::max(), most = 1;
  for (const Member& member : members) {
    most = std::max(most, ++ranks[member.device]);
    processors = std::min(processors, std::stoi(member.processors));
  }
  return std::max(1, processors / most);
}

}  // namespace peal::comm::ipc
