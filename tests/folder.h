// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, gone with it.
#pragma once

#include <peal/autograd/core/told_here.h>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace peal::testing {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "peal test XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
  std::filesystem::path path;
};

// The file there whose name ends so; empty where there is none, or several.
inline std::filesystem::path path_ending(const std::filesystem::path& folder,
                                         const std::string& ending) {
  std::filesystem::path found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (!entry.path().string().ends_with(ending)) continue;
    if (!found.empty()) return {};
    found = entry.path();
  }
  return found;
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What f writes to standard error, log lines among it.
template <class F>
std::string stderr_of(F&& f) {
  const Folder folder;
  const int file = ::open((folder.path / "stderr").c_str(), O_CREAT | O_WRONLY, 0600);
  const int kept = ::dup(2);
  REQUIRE((file >= 0 && kept >= 0 && ::dup2(file, 2) == 2));
  forget_told_warnings();  // else what an earlier one has seen would not come again
  f();
  ::dup2(kept, 2);
  ::close(kept);
  ::close(file);
  return content_of(folder.path / "stderr");
}

}  // namespace peal::testing
