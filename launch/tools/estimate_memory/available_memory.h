// SPDX-License-Identifier: Apache-2.0
// Available memory (RLIMIT_DATA): while one of these lives, no more is to be had than the machine
// has left: what would take more is std::bad_alloc instead of a machine that swaps, or ends the
// process. Linux. Thread safety: one at a time.
#pragma once

#include <peal/autograd/core/error.h>

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace peal::launch {

class AvailableMemory {
 public:
  AvailableMemory() {
    const std::int64_t left = kilobytes("/proc/meminfo", "MemAvailable:"),
                       taken = kilobytes("/proc/self/status", "VmData:");
    PEAL_CHECK(getrlimit(RLIMIT_DATA, &before_) == 0, "getrlimit: ", std::strerror(errno));
    if (left == 0) return;
    rlimit limit = before_;
    limit.rlim_cur = std::min(limit.rlim_cur, static_cast<rlim_t>(taken + left) * 1024);
    setrlimit(RLIMIT_DATA, &limit);
  }
  ~AvailableMemory() { setrlimit(RLIMIT_DATA, &before_); }
  AvailableMemory(const AvailableMemory&) = delete;
  AvailableMemory& operator=(const AvailableMemory&) = delete;

 private:
  static std::int64_t kilobytes(const char* path, const std::string& name) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
      if (std::int64_t number = 0; word == name && file >> number) return number;
    }
    return 0;
  }
  rlimit before_{};
};

}  // namespace peal::launch
