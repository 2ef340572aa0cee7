// SPDX-License-Identifier: Apache-2.0
// Names of shared memory that a run may have left behind.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

namespace peal::testing {

// Those of peal's in /dev/shm, of whatever job.
inline std::set<std::string> segments() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("peal-")) names.insert(name);
  }
  return names;
}

// None is there that was not before. Those of jobs beside this one come and go.
inline void check_nothing_remains(const std::set<std::string>& before) {
  std::set<std::string> news = segments();
  std::erase_if(news, [&](const std::string& name) { return before.contains(name); });
  for (int look = 0; look < 100 && !news.empty(); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::set<std::string> there = segments();
    std::erase_if(news, [&](const std::string& name) { return !there.contains(name); });
  }
  CHECK(news.size() == 0);
}

}  // namespace peal::testing
