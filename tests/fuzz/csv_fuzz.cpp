// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the CSV reader and on what makes tensors of it. Whatever the bytes: a table of rows
// as wide as the first, or a peal::Error; written again, with every cell in quotes, it is the same
// table; and what can be learnt from it encodes it.
#include <peal/autograd/core/error.h>
#include <peal/data/tables/encoded.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace {

using peal::data::Csv;
using peal::data::CsvOptions;

void require(bool condition) {
  if (!condition) std::abort();
}

std::optional<Csv> read(std::span<const std::uint8_t> content, const CsvOptions& options) {
  try {
    return peal::data::parse_csv(content, "F", options);
  } catch (const peal::Error&) {
    return std::nullopt;
  }
}

std::string in_quotes(std::string_view cell) {
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

std::string written(const Csv& csv) {
  std::string text;
  const auto end_cell = [&](std::int64_t column) {
    text += column + 1 < csv.columns() ? "," : "\r\n";
  };
  for (std::int64_t c = 0; c < csv.columns(); ++c) {
    text += in_quotes(csv.names()[static_cast<std::size_t>(c)]);
    end_cell(c);
  }
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    for (std::int64_t c = 0; c < csv.columns(); ++c) {
      text += in_quotes(csv.cell(row, c));
      end_cell(c);
    }
  }
  return text;
}

void check_again(const Csv& csv) {
  const std::string text = written(csv);
  const auto again = read({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, {});
  require(again && again->names() == csv.names() && again->rows() == csv.rows());
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    for (std::int64_t c = 0; c < csv.columns(); ++c) {
      require(again->cell(row, c) == csv.cell(row, c));
    }
  }
}

// The first column as words, the last as numbers.
void check_learnt(const Csv& csv) {
  const peal::data::Table table(csv);
  peal::data::TableColumns columns{.categories = {csv.names().front()}};
  if (csv.columns() > 1) columns.numbers = {csv.names().back()};
  try {
    const auto statistics = peal::data::statistics_of(table, columns);
    const auto set = peal::data::encoded(table, statistics);
    require(set->size() == csv.rows());
    const auto sizes = statistics.cardinalities();
    const auto codes = set->rows().x.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < codes.size(); ++i) {
      require(codes[i] >= 0 && codes[i] < sizes[i % sizes.size()]);
    }
  } catch (const peal::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> content(data, size);
  for (const CsvOptions& options :
       {CsvOptions{},
        CsvOptions{.separator = ';', .names = {"a", "b"}, .skip_initial_space = true}}) {
    const auto csv = read(content, options);
    if (!csv) continue;
    for (std::int64_t row = 0; row < csv->rows(); ++row) require(csv->line(row) >= 1);
    check_again(*csv);
    check_learnt(*csv);
  }
  return 0;
}
