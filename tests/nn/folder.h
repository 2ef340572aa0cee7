// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, gone with it.
#pragma once

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "peal_nn_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
  std::filesystem::path path;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The message of the peal::Error that f throws, or "no error".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const peal::Error& error) {
    return error.what();
  }
  return "no error";
}

// What f writes to standard error, log lines among it.
template <class F>
std::string stderr_of(F&& f) {
  const Folder folder;
  const int file = ::open((folder.path / "stderr").c_str(), O_CREAT | O_WRONLY, 0600);
  const int kept = ::dup(2);
  REQUIRE((file >= 0 && kept >= 0 && ::dup2(file, 2) == 2));
  f();
  ::dup2(kept, 2);
  ::close(kept);
  ::close(file);
  return content_of(folder.path / "stderr");
}

inline void check_has(const std::string& text, const std::string& part) {
  INFO("message: ", text);
  INFO("expected part: ", part);
  CHECK(text.find(part) != std::string::npos);
}
