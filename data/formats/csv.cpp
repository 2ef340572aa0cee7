// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/csv.h>
#include <peal/data/formats/gzip.h>

#include <algorithm>
#include <set>
#include <utility>

namespace peal::data {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// As few bytes at a time as memory may grow without the content having them.
std::string unpacked(std::span<const std::uint8_t> content, std::string_view name) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  GzipReader reader(content, name);
  std::string text;
  for (std::size_t got = piece; got == piece;) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    got = reader.read({reinterpret_cast<std::uint8_t*>(text.data()) + before, piece});
    text.resize(before + got);
  }
  PEAL_CHECK(!reader.cut_short(), "[data] ", name,
             ": its gzip stream is cut short; copy or download the file again");
  return text;
}

}  // namespace

// One pass over the bytes. A cell is copied when it is whole, so that quotes are gone from it.
class CsvReader {
 public:
  CsvReader(std::string_view content, std::string_view name, const CsvOptions& options)
      : rest_(content), options_(options) {
    csv_.name_ = name;
    csv_.names_ = options.names;
    if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
  }

  Csv read() {
    while (!rest_.empty()) {
      if (end_of_line()) continue;  // nothing on it
      if (options_.comment != '\0' && rest_.front() == options_.comment) {
        rest_.remove_prefix(std::min(rest_.find_first_of("\r\n"), rest_.size()));
        continue;
      }
      read_row();
    }
    PEAL_CHECK(!csv_.names_.empty(), "[data] ", csv_.name_,
               ": expected a first row with the names of the columns, got no row at all");
    check_names();
    return std::move(csv_);
  }

 private:
  bool at_separator() const { return !rest_.empty() && rest_.front() == options_.separator; }
  bool at_line_end() const { return rest_.front() == '\n' || rest_.front() == '\r'; }

  // Takes a line end, if one is here.
  bool end_of_line() {
    if (rest_.empty() || !at_line_end()) return false;
    rest_.remove_prefix(rest_.starts_with("\r\n") ? 2 : 1);
    ++line_;
    return true;
  }

  void read_row() {
    const std::int64_t line = line_;
    const bool is_head = csv_.names_.empty();
    std::int64_t cells = 0;
    for (bool more = true; more; ++cells) {
      read_cell();
      more = at_separator();
      if (more) rest_.remove_prefix(1);
    }
    end_of_line();
    if (is_head) return take_names(line);
    PEAL_CHECK(cells == csv_.columns(), "[data] ", csv_.name_, ", line ", line, ": expected ",
               csv_.columns(), " cells, as ",
               options_.names.empty() ? concat("line ", head_line_, " has") : "there are names",
               ", got ", cells, "; is a separator missing, or a quote?");
    csv_.lines_.push_back(line);
  }

  void read_cell() {
    if (options_.skip_initial_space) {
      rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    }
    if (!rest_.empty() && rest_.front() == '"') {
      read_quoted();
    } else {
      std::size_t length = 0;
      while (length < rest_.size() && rest_[length] != options_.separator &&
             rest_[length] != '\n' && rest_[length] != '\r') {
        PEAL_CHECK(rest_[length] != '"', "[data] ", csv_.name_, ", line ", line_,
                   ": a quote within a cell that does not begin with one; put the cell in quotes, "
                   "and write the quote twice");
        ++length;
      }
      csv_.text_.append(rest_.substr(0, length));
      rest_.remove_prefix(length);
    }
    csv_.ends_.push_back(csv_.text_.size());
  }

  void read_quoted() {
    const std::int64_t begin = line_;
    rest_.remove_prefix(1);
    while (true) {
      const std::size_t length = rest_.find_first_of("\"\r\n");
      PEAL_CHECK(length != std::string_view::npos, "[data] ", csv_.name_, ", line ", begin,
                 ": a quote that is opened here is not closed");
      csv_.text_.append(rest_.substr(0, length));
      rest_.remove_prefix(length);
      if (at_line_end()) {
        csv_.text_.append(rest_.substr(0, rest_.starts_with("\r\n") ? 2 : 1));
        end_of_line();
        continue;
      }
      rest_.remove_prefix(1);
      if (rest_.empty() || rest_.front() != '"') break;
      csv_.text_.push_back('"');
      rest_.remove_prefix(1);
    }
    PEAL_CHECK(rest_.empty() || at_separator() || at_line_end(), "[data] ", csv_.name_, ", line ",
               line_, ": expected a separator or the line's end behind a closing quote, got '",
               rest_.substr(0, 1), "'; a quote within a cell is written twice");
  }

  // The cells that were just read.
  void take_names(std::int64_t line) {
    std::size_t begin = 0;
    for (const std::size_t end : csv_.ends_) {
      csv_.names_.push_back(csv_.text_.substr(begin, end - begin));
      begin = end;
    }
    csv_.text_.clear();
    csv_.ends_.clear();
    head_line_ = line;
  }

  void check_names() const {
    std::set<std::string_view> seen;
    for (const std::string& name : csv_.names_) {
      PEAL_CHECK(seen.insert(name).second, "[data] ", csv_.name_, ": two columns are called '",
                 name, "'; rename one");
    }
  }

  Csv csv_;
  std::string_view rest_;
  const CsvOptions& options_;
  std::int64_t line_ = 1, head_line_ = 0;
};

Csv parse_csv(std::span<const std::uint8_t> content, std::string_view name,
              const CsvOptions& options) {
  PEAL_CHECK(options.separator != '"' && options.separator != '\n' && options.separator != '\r' &&
                 !(options.separator == ' ' && options.skip_initial_space),
             "[data] ", name, ": the separator is a quote, a line end, or a blank that is skipped");
  return CsvReader(unpacked(content, name), name, options).read();
}

Csv read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  return parse_csv(read_file(path), path.string(), options);
}

}  // namespace peal::data
