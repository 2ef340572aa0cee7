// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/nearest.h>
#include <peal/data/tables/encoded.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

namespace peal::data {
namespace {

// A column of a row-major matrix.
template <class T>
class ColumnOf {
 public:
  ColumnOf(const Tensor& matrix, std::int64_t column)
      : at_(matrix.data<T>() + column), stride_(matrix.size(1)) {}
  T& operator[](std::int64_t row) const { return at_[row * stride_]; }

 private:
  T* at_;
  std::int64_t stride_;
};

void encode(const Table& table, const Categories& by, ColumnOf<std::int64_t> codes) {
  const std::int64_t column = table.column(by.column);
  std::int64_t unknown = 0, first = 0;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const auto word = table.word(row, column);
    const auto found = word ? by.find(*word) : std::nullopt;
    codes[row] = found ? *found + 1 : 0;
    if (word && !found && unknown++ == 0) first = row;
  }
  if (unknown == 0) return;
  log_warning("[data] ", table.where(first, column), ": '", *table.word(first, column),
              "' is none of the ", by.words.size(), " words that training had; ", unknown, " of ",
              table.rows(), " cells there are so, and count as missing");
}

// `flags`: whether it is missing, 1 for no and 2 for yes, where training rows lacked some.
void encode(const Table& table, const Scaling& by, ColumnOf<float> numbers,
            const ColumnOf<std::int64_t>* flags) {
  const std::int64_t column = table.column(by.column);
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const auto number = table.number(row, column);
    PEAL_CHECK(number || flags != nullptr, "[data] ", table.where(row, column),
               ": the number is missing, and no row of training lacked one; fill it in, or leave "
               "the row out");
    numbers[row] = static_cast<float>((number.value_or(by.median) - by.mean) / by.deviation);
    if (flags != nullptr) (*flags)[row] = number ? 1 : 2;
  }
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Of a table without the target's column, whose rows are to be predicted: a column that nothing
// else is, and whose name is nearly the target's, is the target, misspelt.
void check_not_misspelt(const Table& table, const TableStatistics& statistics) {
  const std::string& target = statistics.target.column;
  const auto known = [&](const std::string& name) {
    const auto is = [&](const auto& column) { return column.column == name; };
    return std::ranges::any_of(statistics.categories, is) ||
           std::ranges::any_of(statistics.numbers, is);
  };
  for (const std::string& name : table.names()) {
    const int off = edits(lower(name), lower(target));
    PEAL_CHECK(
        known(name) || (off > 0 && 4 * off >= std::ssize(target)), "[data] ", table.name(),
        ": it has no column '", target, "', which is the target, but '", name,
        "', which is nothing; give it the target's name, or leave it out of rows that are to "
        "be predicted");
  }
}

Tensor encoded_target(const Table& table, const TableStatistics& statistics) {
  const Categories& by = statistics.target;
  if (by.column.empty()) return {};
  if (std::ranges::find(table.names(), by.column) == table.names().end()) {
    check_not_misspelt(table, statistics);
    return {};
  }
  const std::int64_t column = table.column(by.column);
  const bool is_number = statistics.target_is_number;
  const Tensor y = Tensor::empty({table.rows()}, is_number ? DType::f32 : DType::i64, Device{});
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const auto word = table.word(row, column);
    PEAL_CHECK(word, "[data] ", table.where(row, column),
               ": it is missing, and is what a model is judged by; leave such rows out");
    if (is_number) {
      y.data<float>()[row] = static_cast<float>(*table.number(row, column));
      continue;
    }
    const auto found = by.find(*word);
    PEAL_CHECK(found, "[data] ", table.where(row, column), ": expected one of '",
               fmt::format("{}", fmt::join(by.words, "', '")), "', got '", *word, "'");
    y.data<std::int64_t>()[row] = *found;
  }
  return y;
}

}  // namespace

std::shared_ptr<const TensorDataset> encoded(const Table& table,
                                             const TableStatistics& statistics) {
  const auto rows = table.rows();
  const Tensor codes =
      Tensor::zeros({rows, std::ssize(statistics.cardinalities())}, DType::i64, Device{});
  const Tensor numbers =
      Tensor::zeros({rows, std::ssize(statistics.numbers)}, DType::f32, Device{});
  std::int64_t at = 0;
  for (const Categories& column : statistics.categories) encode(table, column, {codes, at++});
  for (std::size_t i = 0; i < statistics.numbers.size(); ++i) {
    const Scaling& column = statistics.numbers[i];
    const ColumnOf<float> to(numbers, static_cast<std::int64_t>(i));
    if (column.has_missing) {
      const ColumnOf<std::int64_t> flags(codes, at++);
      encode(table, column, to, &flags);
    } else {
      encode(table, column, to, nullptr);
    }
  }
  return std::make_shared<TensorDataset>(codes, encoded_target(table, statistics),
                                         NamedTensors{{"numbers", numbers}});
}

}  // namespace peal::data
