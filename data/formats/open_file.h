// SPDX-License-Identifier: Apache-2.0
// A file that is open for reading at any place (pread). Thread safety: const methods may be called
// from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace peal::data {

class OpenFile {
 public:
  // Errors: not there, not a file, not readable, each with the system's reason.
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // What tells two states of a file apart.
  struct Stamp {
    std::uint64_t size = 0;    // bytes
    std::int64_t written = 0;  // in ns since 1970
    bool operator==(const Stamp&) const = default;
  };
  // As it is now.
  Stamp stamp() const;

  // Fills `to` with the bytes from `at` on and returns how many there were: fewer only at the end.
  // Error: not readable.
  std::size_t read(std::uint64_t at, std::span<std::uint8_t> to) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int file_ = -1;
};

}  // namespace peal::data
