// SPDX-License-Identifier: Apache-2.0
// A CSV file that grows by a row at a time (RFC 4180), of numbers that come by name: each row is in
// the file, whole, when write() returns, so a run that dies leaves all it has told. A name that is
// new becomes one more column, for which the file is written anew, whole or not at all; what a row
// has no number for is an empty cell. Thread safety: one thread; one writer a file.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

class CsvRows {
 public:
  using Cells = std::vector<std::pair<std::string, std::string>>;  // by name

  // Goes on with a file that is there, but for a last line that is not whole, or begins it anew.
  // Makes the folder. Error: the path and the reason.
  explicit CsvRows(std::filesystem::path path, bool append = false);
  // A row, at once. Error: the path and the reason.
  void write(const Cells& cells);

 private:
  void add_columns(const Cells& cells);

  std::filesystem::path path_;
  std::vector<std::string> names_;
};

// A file's lines that are whole; none where there is no file.
std::vector<std::string> whole_lines(const std::filesystem::path& path);
// The file is these lines; its folder is made.
void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines);
// One more, at its end. Error: the path and the reason.
void append_line(const std::filesystem::path& path, const std::string& line);

}  // namespace peal::launch
