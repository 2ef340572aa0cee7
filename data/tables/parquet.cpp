// SPDX-License-Identifier: Apache-2.0
// The one file that sees Arrow. Cells are written as CSV, group of rows by group, and parsed as
// such: a Table has text.
#include <peal/autograd/core/error.h>
#include <peal/data/tables/parquet.h>

#include <arrow/api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>

namespace peal::data {
namespace {

using Reader = parquet::arrow::FileReader;

void check_done(const std::string& name, const arrow::Status& status) {
  PEAL_CHECK(status.ok(), "[data] ", name, ": ", status.ToString());
}

void add_quoted(std::string& text, std::string_view word) {
  text += '"';
  for (const char c : word) text.append(c == '"' ? 2 : 1, c);
  text += '"';
}

template <class Array>
auto value_in(const arrow::Array& array, std::int64_t row) {
  return static_cast<const Array&>(array).Value(row);
}

template <class Array>
std::string_view view_in(const arrow::Array& array, std::int64_t row) {
  return static_cast<const Array&>(array).GetView(row);
}

void add_cell(std::string& text, const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) {
    text += "\"\"";  // a row of nothing else would be no row
    return;
  }
  const auto number = [&](auto value) { fmt::format_to(std::back_inserter(text), "{}", value); };
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      text += value_in<arrow::BooleanArray>(array, row) ? "True" : "False";
      return;
    case arrow::Type::INT8:
      return number(static_cast<int>(value_in<arrow::Int8Array>(array, row)));
    case arrow::Type::INT16:
      return number(value_in<arrow::Int16Array>(array, row));
    case arrow::Type::INT32:
      return number(value_in<arrow::Int32Array>(array, row));
    case arrow::Type::INT64:
      return number(value_in<arrow::Int64Array>(array, row));
    case arrow::Type::UINT8:
      return number(static_cast<int>(value_in<arrow::UInt8Array>(array, row)));
    case arrow::Type::UINT16:
      return number(value_in<arrow::UInt16Array>(array, row));
    case arrow::Type::UINT32:
      return number(value_in<arrow::UInt32Array>(array, row));
    case arrow::Type::UINT64:
      return number(value_in<arrow::UInt64Array>(array, row));
    case arrow::Type::FLOAT:
      return number(value_in<arrow::FloatArray>(array, row));
    case arrow::Type::DOUBLE:
      return number(value_in<arrow::DoubleArray>(array, row));
    case arrow::Type::STRING:
      return add_quoted(text, view_in<arrow::StringArray>(array, row));
    case arrow::Type::LARGE_STRING:
      return add_quoted(text, view_in<arrow::LargeStringArray>(array, row));
    case arrow::Type::BINARY:
      return add_quoted(text, view_in<arrow::BinaryArray>(array, row));
    case arrow::Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return add_cell(text, *words.dictionary(), words.GetValueIndex(row));
    }
    default:
      add_quoted(text, array.GetScalar(row).ValueOrDie()->ToString());
  }
}

// Newer ones give a Result, others write where they are told.
template <class R>
std::shared_ptr<arrow::Table> group_of(const std::string& name, R& reader, int group,
                                       const std::vector<int>& columns) {
  if constexpr (requires { reader.ReadRowGroup(group, columns).ValueOrDie(); }) {
    auto read = reader.ReadRowGroup(group, columns);
    check_done(name, read.status());
    return *read;
  } else {
    std::shared_ptr<arrow::Table> read;
    check_done(name, reader.ReadRowGroup(group, columns, &read));
    return read;
  }
}

// Where the wanted columns are among all, which lists and structures have several of.
std::vector<int> places_of(const std::string& name, const parquet::SchemaDescriptor& schema,
                           const std::vector<std::string>& wanted) {
  std::vector<int> places;
  std::vector<std::string> names;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const std::string& column = schema.GetColumnRoot(i)->name();
    if (names.empty() || names.back() != column) names.push_back(column);
    if (wanted.empty() || std::ranges::find(wanted, column) != wanted.end()) places.push_back(i);
  }
  for (const std::string& column : wanted) {
    PEAL_CHECK(std::ranges::find(names, column) != names.end(), "[data] ", name,
               ": it has no column '", column, "', but ",
               fmt::format("{}", fmt::join(names, ", ")));
  }
  return places;
}

void add_rows(std::string& text, const std::string& name, const arrow::Table& group) {
  // As one piece each, so that rows are found by their number.
  auto whole = group.CombineChunks();
  check_done(name, whole.status());
  std::vector<std::shared_ptr<arrow::Array>> columns;
  for (const auto& column : (*whole)->columns()) {
    PEAL_CHECK(column->num_chunks() <= 1, "[data] ", name, ": a group of ", group.num_rows(),
               " rows has more bytes of words in a column than Arrow holds in one piece; write the "
               "file in smaller groups of rows");
    if (column->num_chunks() > 0) columns.push_back(column->chunk(0));
  }
  for (std::int64_t row = 0; row < group.num_rows(); ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ',';
      add_cell(text, *columns[i], row);
    }
    text += '\n';
  }
}

std::string as_csv(const std::string& name, const std::vector<std::string>& wanted) {
  parquet::arrow::FileReaderBuilder builder;
  check_done(name, builder.OpenFile(name));
  std::unique_ptr<Reader> reader;
  check_done(name, builder.Build(&reader));
  const auto metadata = reader->parquet_reader()->metadata();
  const std::vector<int> places = places_of(name, *metadata->schema(), wanted);
  std::shared_ptr<arrow::Schema> schema;
  check_done(name, reader->GetSchema(&schema));
  std::string text;
  for (const auto& field : schema->fields()) {
    if (!wanted.empty() && std::ranges::find(wanted, field->name()) == wanted.end()) continue;
    PEAL_CHECK(field->type()->num_fields() == 0, "[data] ", name, ": column '", field->name(),
               "' is of ", field->type()->ToString(),
               ", and a table has words and numbers; name other columns");
    if (!text.empty()) text += ',';
    add_quoted(text, field->name());
  }
  text += '\n';
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    add_rows(text, name, *group_of(name, *reader, group, places));
  }
  return text;
}

}  // namespace

Table read_parquet(const std::filesystem::path& path, const ParquetOptions& options,
                   const std::vector<std::string>& missing) {
  const std::string name = path.string();
  std::string text;
  try {
    text = as_csv(name, options.columns);
  } catch (const parquet::ParquetException& error) {
    fail(concat("[data] ", name, ": ", error.what()));
  }
  return Table(parse_csv({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, name),
               missing);
}

}  // namespace peal::data
