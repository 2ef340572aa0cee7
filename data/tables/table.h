// SPDX-License-Identifier: Apache-2.0
// Table: columns of text by name, as a CSV file has them, that are looked at as words or numbers.
// A cell may be missing: empty, or one of the words that stand for it. Thread safety: const methods
// may be called from several threads at once.
#pragma once

#include <peal/data/formats/csv.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

// Beside the empty cell; those of pandas.read_csv.
std::vector<std::string> words_for_missing();

class Table {
 public:
  explicit Table(Csv csv, const std::vector<std::string>& missing = words_for_missing());

  std::int64_t rows() const { return csv_.rows(); }
  const std::vector<std::string>& names() const { return csv_.names(); }
  const std::string& name() const { return csv_.name(); }
  // The number of the column. Error that lists the names there are.
  std::int64_t column(std::string_view name) const;

  // The cell, without blanks around it; nothing where it is missing. REQUIRES: a row and a column
  // that there are.
  std::optional<std::string_view> word(std::int64_t row, std::int64_t column) const;
  // The same as a number. Error for a word that is none, or not finite.
  std::optional<double> number(std::int64_t row, std::int64_t column) const;
  // For errors: "people.csv, line 7, column 'age'".
  std::string where(std::int64_t row, std::int64_t column) const;

  // Every cell of a column becomes f(cell).
  void map(std::string_view name, const std::function<std::string(std::string_view cell)>& f);

 private:
  std::string_view cell(std::int64_t row, std::int64_t column) const;

  Csv csv_;
  std::set<std::string, std::less<>> missing_;
  std::map<std::int64_t, std::vector<std::string>> changed_;  // columns
};

// Errors: those of read_csv().
Table read_table(const std::filesystem::path& path, const CsvOptions& options = {},
                 const std::vector<std::string>& missing = words_for_missing());

}  // namespace peal::data
