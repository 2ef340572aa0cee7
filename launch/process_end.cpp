// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/process_end.h>

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <system_error>

namespace peal::launch {
namespace {

// The file that counts for a group of /proc/self/cgroup: in a container the path there may be the
// host's, and the group itself is where the file system begins.
std::filesystem::path counter_of(const std::filesystem::path& mount, const std::string& group,
                                 const char* name) {
  std::error_code none;
  for (const auto& folder : {mount / std::filesystem::path(group).relative_path(), mount})
    if (std::filesystem::exists(folder / name, none)) return folder / name;
  return {};
}

std::filesystem::path counter_in(const std::filesystem::path& root) {
  const auto mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  std::filesystem::path found;
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:PATH
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers.find(",memory,") != controllers.npos)
      return counter_of(mount / "memory", group, "memory.oom_control");
    if (controllers == ",,") found = counter_of(mount, group, "memory.events");
  }
  return found;
}

}  // namespace

OomKills::OomKills(const std::filesystem::path& root) : file_(counter_in(root)), begin_(count()) {}

std::int64_t OomKills::count() const {
  std::ifstream file(file_);
  std::string name;
  for (std::int64_t number = 0; file >> name >> number;)
    if (name == "oom_kill") return number;
  return 0;
}

std::string signal_name(int signal) {
  const char* const short_name = sigabbrev_np(signal);
  return short_name == nullptr ? concat("signal ", signal) : concat("SIG", short_name);
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string process_end(int status, std::int64_t oom_kills) {
  if (!WIFSIGNALED(status)) return concat("ended with exit code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGKILL && oom_kills > 0) {
    return concat("was ended by SIGKILL; its memory control group's oom_kill counter rose by ",
                  oom_kills, ": the group had no memory left");
  }
  const char* const advice =
      signal == SIGKILL ? "; where nobody did that, the machine had no memory left (dmesg says so)"
                        : "";
  return concat("was ended by ", signal_name(signal), advice);
}

}  // namespace peal::launch
