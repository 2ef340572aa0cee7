// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/tables/statistics.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace peal::data {
namespace {

Categories categories_of(const Table& table, const std::string& name, bool all_there,
                         std::span<const std::int64_t> rows) {
  const std::int64_t column = table.column(name);
  std::set<std::string_view> words;
  for (const std::int64_t row : rows) {
    const auto word = table.word(row, column);
    PEAL_CHECK(word || !all_there, "[data] ", table.where(row, column),
               ": it is missing, and is what shall be learnt; leave such rows out");
    if (word) words.insert(*word);
  }
  return {name, {words.begin(), words.end()}};
}

Scaling scaling_of(const Table& table, const std::string& name,
                   std::span<const std::int64_t> rows) {
  const std::int64_t column = table.column(name);
  Scaling found{.column = name};
  std::vector<double> there;
  for (const std::int64_t row : rows) {
    if (const auto number = table.number(row, column)) there.push_back(*number);
  }
  PEAL_CHECK(!there.empty(), "[data] ", table.name(), ": column '", name,
             "' has no number at all in ", rows.size(), " training rows");
  const auto missing = static_cast<double>(std::ssize(rows) - std::ssize(there));
  found.has_missing = missing > 0;
  const auto half = there.begin() + std::ssize(there) / 2;
  std::nth_element(there.begin(), half, there.end());
  found.median = *half;
  if (there.size() % 2 == 0) {
    found.median = (found.median + *std::max_element(there.begin(), half)) / 2;
  }
  const auto count = static_cast<double>(rows.size());
  found.mean = std::accumulate(there.begin(), there.end(), missing * found.median) / count;
  const auto squared = [&](double x) { return (x - found.mean) * (x - found.mean); };
  double squares = missing * squared(found.median);
  for (const double x : there) squares += squared(x);
  found.deviation = std::sqrt(squares / count) + 1e-7;
  return found;
}

void check_columns(const TableColumns& columns) {
  std::set<std::string_view> seen;
  const auto check = [&](const std::string& name) {
    PEAL_CHECK(seen.insert(name).second, "[data] columns of a table: '", name,
               "' comes twice among categories, numbers and target");
  };
  for (const std::string& name : columns.categories) check(name);
  for (const std::string& name : columns.numbers) check(name);
  if (!columns.target.empty()) check(columns.target);
}

}  // namespace

std::optional<std::int64_t> Categories::find(std::string_view word) const {
  const auto found = std::lower_bound(words.begin(), words.end(), word);
  if (found == words.end() || *found != word) return std::nullopt;
  return found - words.begin();
}

std::vector<std::int64_t> TableStatistics::cardinalities() const {
  std::vector<std::int64_t> counts;
  for (const Categories& column : categories) counts.push_back(std::ssize(column.words) + 1);
  for (const Scaling& column : numbers) {
    if (column.has_missing) counts.push_back(3);
  }
  return counts;
}

TableStatistics statistics_of(const Table& table, const TableColumns& columns,
                              std::span<const std::int64_t> rows) {
  check_columns(columns);
  PEAL_CHECK(!rows.empty(), "[data] ", table.name(), ": there is no row to learn from");
  TableStatistics found;
  for (const std::string& name : columns.categories) {
    found.categories.push_back(categories_of(table, name, false, rows));
  }
  for (const std::string& name : columns.numbers) {
    found.numbers.push_back(scaling_of(table, name, rows));
  }
  found.target_is_number = columns.target_is_number;
  found.target.column = columns.target;
  if (columns.target.empty()) return found;
  static_cast<void>(table.column(columns.target));  // which encoded() may do without, not this
  if (!columns.target_is_number) found.target = categories_of(table, columns.target, true, rows);
  return found;
}

TableStatistics statistics_of(const Table& table, const TableColumns& columns) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(table.rows()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return statistics_of(table, columns, all);
}

std::int64_t embedding_width(std::int64_t codes) {
  return std::min<std::int64_t>(600, std::llrint(1.6 * std::pow(codes, 0.56)));
}

std::vector<std::pair<std::int64_t, std::int64_t>> embedding_sizes(const TableStatistics& of) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
  for (const std::int64_t codes : of.cardinalities()) {
    sizes.emplace_back(codes, embedding_width(codes));
  }
  return sizes;
}

}  // namespace peal::data
