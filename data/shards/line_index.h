// SPDX-License-Identifier: Apache-2.0
// Where the lines of a text file begin, but for blank ones. Thread safety: a value.
#pragma once

#include <peal/data/formats/open_file.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

struct LineIndex {
  std::vector<std::uint64_t> begins;   // in bytes
  std::vector<std::uint64_t> numbers;  // of lines, from 1; empty where no line is blank
  std::uint64_t file_size = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(begins.size()); }
  // Of what may be behind it: line breaks and blank lines.
  std::uint64_t end(std::size_t line) const {
    return line + 1 < begins.size() ? begins[line + 1] : file_size;
  }
  std::uint64_t number(std::size_t line) const {
    return numbers.empty() ? line + 1 : numbers[line];
  }

  std::string to_bytes() const;
  // Nothing where these are no index of a file of `file_size` bytes.
  static std::optional<LineIndex> from_bytes(std::string_view bytes, std::uint64_t file_size);
};

// Reads all of the file; of one of `keep_from` bytes or more the index is kept beside it
// (kept_index.h). Error: a packed file.
LineIndex line_index(const OpenFile& file, std::uint64_t keep_from);

}  // namespace peal::data
