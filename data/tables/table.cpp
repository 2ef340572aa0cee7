// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/tables/table.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace peal::data {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace

std::vector<std::string> words_for_missing() {
  return {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
          "<NA>", "N/A",      "NA",  "NULL",    "NaN",      "None", "n/a",  "nan",    "null"};
}

Table::Table(Csv csv, const std::vector<std::string>& missing)
    : csv_(std::move(csv)), missing_(missing.begin(), missing.end()) {}

std::int64_t Table::column(std::string_view name) const {
  const auto found = std::find(names().begin(), names().end(), name);
  PEAL_CHECK(found != names().end(), "[data] ", this->name(), ": it has no column '", name,
             "', but ", fmt::format("{}", fmt::join(names(), ", ")));
  return found - names().begin();
}

std::string_view Table::cell(std::int64_t row, std::int64_t column) const {
  const auto changed = changed_.find(column);
  if (changed != changed_.end()) return changed->second[static_cast<std::size_t>(row)];
  return csv_.cell(row, column);
}

std::optional<std::string_view> Table::word(std::int64_t row, std::int64_t column) const {
  const std::string_view word = without_blanks(cell(row, column));
  if (word.empty() || missing_.contains(word)) return std::nullopt;
  return word;
}

std::optional<double> Table::number(std::int64_t row, std::int64_t column) const {
  const auto word = this->word(row, column);
  if (!word) return std::nullopt;
  const std::string_view digits = word->starts_with('+') ? word->substr(1) : *word;
  double value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  PEAL_CHECK(problem == std::errc{} && end == digits.data() + digits.size() &&
                 std::isfinite(value) && !digits.empty(),
             "[data] ", where(row, column), ": expected a number, got '", *word,
             "'; what stands for a missing one may be named when the table is read");
  return value;
}

std::string Table::where(std::int64_t row, std::int64_t column) const {
  return concat(name(), ", line ", csv_.line(row), ", column '",
                names()[static_cast<std::size_t>(column)], "'");
}

void Table::map(std::string_view name, const std::function<std::string(std::string_view)>& f) {
  const std::int64_t at = column(name);
  std::vector<std::string> cells;
  cells.reserve(static_cast<std::size_t>(rows()));
  for (std::int64_t row = 0; row < rows(); ++row) cells.push_back(f(cell(row, at)));
  changed_[at] = std::move(cells);
}

Table read_table(const std::filesystem::path& path, const CsvOptions& options,
                 const std::vector<std::string>& missing) {
  return Table(read_csv(path, options), missing);
}

}  // namespace peal::data
