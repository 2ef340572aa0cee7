// SPDX-License-Identifier: Apache-2.0
// What is learnt from the training rows of a table before a model is: which words a column has
// (fastai: Categorify), what stands in for a missing number (FillMissing) and how numbers are
// scaled (Normalize). It is a value that is saved beside the model, since a model is nothing
// without it. Thread safety: a value; pure functions but for files.
#pragma once

#include <peal/data/tables/table.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::data {

// What the columns of a table are.
struct TableColumns {
  std::vector<std::string> categories = {}, numbers = {};
  std::string target = {};  // what a model shall say; none: the table is only looked at
  bool target_is_number = false;
};

// The words of a column, sorted, and their codes: 0 is a word that is missing or that training had
// none of, the others count from 1. Of a target they count from 0, and nothing may be missing.
struct Categories {
  std::string column;
  std::vector<std::string> words;
  bool operator==(const Categories&) const = default;

  // The place in `words`.
  std::optional<std::int64_t> find(std::string_view word) const;
};

struct Scaling {
  std::string column;
  double median = 0;               // stands in for what is missing
  double mean = 0, deviation = 1;  // of the filled column: (x - mean) / deviation
  bool has_missing = false;        // among training rows: then whether one is, is a category, too
  bool operator==(const Scaling&) const = default;
};

struct TableStatistics {
  std::vector<Categories> categories;
  std::vector<Scaling> numbers;
  Categories target;  // words: none of a number
  bool target_is_number = false;
  bool operator==(const TableStatistics&) const = default;

  // Of each category of an encoded table, how many codes it has: of those above, and of "is it
  // missing" of the numbers that had missing ones.
  std::vector<std::int64_t> cardinalities() const;
};

// Of these rows: mean and deviation (ddof 0, and 1e-7 more, as fastai's) of what is there and what
// is filled in, and the median of what is there. Errors: columns that the table has not, one that
// comes twice, a number that is none, a column without any number, no row, a target that is
// missing.
TableStatistics statistics_of(const Table& table, const TableColumns& columns,
                              std::span<const std::int64_t> rows);
// Of all.
TableStatistics statistics_of(const Table& table, const TableColumns& columns);

// fastai's rule for the width of an embedding: min(600, round(1.6 n^0.56)) for n codes.
std::int64_t embedding_width(std::int64_t codes);
// For each of cardinalities(): how many codes, and that width.
std::vector<std::pair<std::int64_t, std::int64_t>> embedding_sizes(const TableStatistics& of);

// As JSON; the file is replaced whole or not at all. Errors: not writable; a word that is no UTF-8.
void save_statistics(const std::filesystem::path& path, const TableStatistics& statistics);
std::string text_of(const TableStatistics& statistics);  // the file's
// Error for a file that is not one of these.
TableStatistics load_statistics(const std::filesystem::path& path);
// The same of text; `name` stands for the file in errors.
TableStatistics parse_statistics(std::string_view text, std::string_view name);

}  // namespace peal::data
