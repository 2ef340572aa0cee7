// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/training/csv_rows.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>

namespace peal::launch {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char each : text) quoted += each == '"' ? std::string("\"\"") : std::string(1, each);
  return quoted + '"';
}

// The cells of a line that csv_cell() has made, of which none has a line's end within.
std::vector<std::string> csv_cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + csv_cell(cells[i]);
  return line;
}

}  // namespace

std::vector<std::string> whole_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = all.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(all.substr(at, end - at));
  }
  return lines;
}

void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + '\n';
  std::error_code ignored;  // the file says what is wrong
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  AtomicFile file(path);
  file.write(all.data(), all.size());
  file.commit(AtomicFile::Flush::no);
}

// By one call, so that a process that is killed leaves it whole or not at all.
void append_line(const std::filesystem::path& path, const std::string& line) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "a"), close);
  const std::string whole = line + '\n';
  bool written = file != nullptr && std::setvbuf(file.get(), nullptr, _IONBF, 0) == 0;
  written = written && std::fwrite(whole.data(), 1, whole.size(), file.get()) == whole.size();
  PEAL_CHECK(written, path.string(),
             ": cannot be written: ", std::error_code(errno, std::generic_category()).message());
}

CsvRows::CsvRows(std::filesystem::path path, bool append) : path_(std::move(path)) {
  const std::vector<std::string> lines = append ? whole_lines(path_) : std::vector<std::string>();
  if (!lines.empty()) names_ = csv_cells(lines[0]);
  write_lines(path_, lines);
}

void CsvRows::add_columns(const Cells& cells) {
  const std::size_t before = names_.size();
  for (const auto& [name, text] : cells) {
    PEAL_CHECK(name.find_first_of("\r\n") == std::string::npos && !name.empty(), path_.string(),
               ": expected a name of one line for a column, got '", name, "'");
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
  }
  if (names_.size() == before) return;
  std::vector<std::string> lines = before == 0 ? std::vector<std::string>() : whole_lines(path_);
  if (lines.empty()) lines.emplace_back();
  for (std::string& line : lines) line += std::string(names_.size() - before, ',');
  lines[0] = csv_line(names_);
  write_lines(path_, lines);
}

void CsvRows::write(const Cells& cells) {
  add_columns(cells);
  std::vector<std::string> row(names_.size());
  for (const auto& [name, text] : cells) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    row[static_cast<std::size_t>(found - names_.begin())] = text;
  }
  append_line(path_, csv_line(row));
}

}  // namespace peal::launch
