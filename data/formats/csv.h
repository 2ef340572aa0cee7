// SPDX-License-Identifier: Apache-2.0
// CSV: rows of cells of text (RFC 4180). Cells are parted by commas and rows by line ends (LF, CRLF
// or CR); a cell in double quotes may hold both, and a quote as two. Every row has as many cells as
// the first; lines with nothing on them are passed over, and so is a byte order mark.
//
// A file is data from outside: what is wrong with it is named by its line. Invariant: memory is a
// small multiple of the content's, whatever the content. gzip is unpacked, told by the content.
// Thread safety: reading is free of state; a Csv is immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

struct CsvOptions {
  char separator = ',';
  // The columns' names; none: the first row has them.
  std::vector<std::string> names = {};
  bool skip_initial_space = false;  // blanks after a separator are none of the cell
  char comment = '\0';              // a line that begins with it is left out; none by default
};

class Csv {
 public:
  std::int64_t rows() const { return std::ssize(lines_); }
  std::int64_t columns() const { return std::ssize(names_); }
  const std::vector<std::string>& names() const { return names_; }
  // What errors call the content.
  const std::string& name() const { return name_; }
  // REQUIRES: a row and a column that there are.
  std::string_view cell(std::int64_t row, std::int64_t column) const {
    const auto at = static_cast<std::size_t>(row * columns() + column);
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return std::string_view(text_).substr(begin, ends_[at] - begin);
  }
  // The line of the file, from 1, where the row begins.
  std::int64_t line(std::int64_t row) const { return lines_[static_cast<std::size_t>(row)]; }

 private:
  friend class CsvReader;
  std::string name_;
  std::vector<std::string> names_;
  std::string text_;               // of all cells, one behind the other
  std::vector<std::size_t> ends_;  // of the cells, in text_
  std::vector<std::int64_t> lines_;
};

// Errors, which name the file and the line: not there, more or fewer cells than in the first row, a
// quote within a cell that does not begin with one, text behind a closing quote, a quote that is
// not closed; no row for the names, a name twice.
Csv read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

// The same from memory; `name` stands for the file in errors.
Csv parse_csv(std::span<const std::uint8_t> content, std::string_view name,
              const CsvOptions& options = {});

}  // namespace peal::data
