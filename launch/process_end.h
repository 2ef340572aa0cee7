// SPDX-License-Identifier: Apache-2.0
// Exit status: how a process ended, in words, of what waitpid() says. Thread safety: free functions
// without state; OomKills: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace peal::launch {

// "SIGSEGV"; "signal 40" of one without a name.
std::string signal_name(int signal);

// "was ended by SIGSEGV", "ended with exit code 3": what follows a process's name. Of SIGKILL it
// says where else than from people that comes from, or, where the kernel has counted `oom_kills`
// since the process's beginning, that it does.
std::string process_end(int status, std::int64_t oom_kills = 0);

// How many processes the kernel has killed as the memory control group (cgroup) that this process
// is in had no memory left: oom_kill in memory.events, or, of cgroups v1, in memory.oom_control.
class OomKills {
 public:
  // `root`: where /proc and /sys are.
  explicit OomKills(const std::filesystem::path& root = "/");
  // More than there were at its construction; 0 where nobody counts.
  std::int64_t since_begin() const { return count() - begin_; }

 private:
  std::int64_t count() const;
  std::filesystem::path file_;  // empty: there is none
  std::int64_t begin_;
};

// What a shell calls it: its exit code, or 128 and its signal.
int exit_code(int status);

}  // namespace peal::launch
