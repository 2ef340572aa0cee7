// SPDX-License-Identifier: Apache-2.0
// Parquet files that Arrow writes, as tables: the same cells as of a CSV file of them.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <doctest/doctest.h>
#include <parquet/arrow/writer.h>
#include <peal/data/tables/encoded.h>
#include <peal/data/tables/parquet.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::error_of;

namespace {

template <class Builder, class T>
std::shared_ptr<arrow::Array> column_of(const std::vector<T>& values,
                                        const std::vector<bool>& valid = {}) {
  Builder builder;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is = valid.empty() || valid[i];
    REQUIRE((is ? builder.Append(values[i]) : builder.AppendNull()).ok());
  }
  return builder.Finish().ValueOrDie();
}

void write(const std::filesystem::path& path,
           const std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>& columns,
           std::int64_t rows_of_a_group = 2) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
  const auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  REQUIRE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, rows_of_a_group).ok());
  REQUIRE(file->Close().ok());
}

}  // namespace

TEST_CASE("a Parquet file is a table: words, numbers, what is missing, group by group") {
  const testing::Folder folder;
  const auto path = folder.path / "people.parquet";
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  write(path, {{"job", column_of<arrow::StringBuilder, std::string>(
                           {"smith, \"the\" 1st", "", "baker\nand cook", "smith", "x"},
                           {true, false, true, true, true})},
               {"age", column_of<arrow::Int64Builder, std::int64_t>(
                           {30, -1, large, 0, 7}, {true, true, true, false, true})},
               {"height", column_of<arrow::DoubleBuilder, double>({0.1, 1e300, -2, 3, 1.0 / 3})},
               {"share", column_of<arrow::FloatBuilder, float>({0.1f, 1, 2, 3, 4})},
               {"small", column_of<arrow::Int8Builder, std::int8_t>({65, -1, 0, 1, 2})},
               {"earns", column_of<arrow::BooleanBuilder, bool>({true, false, true, true, false})},
               {"born", column_of<arrow::Date32Builder, std::int32_t>({0, 1, 2, 3, 366})}});
  const data::Table table = data::read_parquet(path);
  CHECK(table.names() ==
        std::vector<std::string>{"job", "age", "height", "share", "small", "earns", "born"});
  REQUIRE(table.rows() == 5);
  CHECK(table.word(0, 0) == "smith, \"the\" 1st");
  CHECK(!table.word(1, 0));
  CHECK(table.word(2, 0) == "baker\nand cook");
  CHECK(table.word(2, 1) == "9223372036854775807");
  CHECK(!table.number(3, 1));
  CHECK(table.number(4, 2) == 1.0 / 3);
  CHECK(table.number(1, 2) == 1e300);
  CHECK(static_cast<float>(*table.number(0, 3)) == 0.1f);
  CHECK(table.number(0, 4) == 65);
  CHECK(table.word(1, 5) == "False");
  CHECK(table.word(4, 6) == "1971-01-02");
  const data::Table part = data::read_parquet(path, {.columns = {"earns", "age"}});
  CHECK(part.names() == std::vector<std::string>{"age", "earns"});
  CHECK(part.word(0, 1) == "True");
  const auto statistics =
      data::statistics_of(table, {.categories = {"job"}, .numbers = {"height"}, .target = "earns"});
  CHECK(data::encoded(table, statistics)->rows().y.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 0, 1, 1, 0});
}

TEST_CASE("words by number, a column alone that is missing, and no rows") {
  const testing::Folder folder;
  arrow::StringDictionaryBuilder builder;
  for (const char* word : {"b", "a", "b"}) REQUIRE(builder.Append(word).ok());
  write(folder.path / "d", {{"word", builder.Finish().ValueOrDie()}});
  const data::Table words = data::read_parquet(folder.path / "d");
  REQUIRE(words.rows() == 3);
  CHECK(words.word(0, 0) == "b");
  CHECK(words.word(1, 0) == "a");
  write(folder.path / "n",
        {{"a", column_of<arrow::Int64Builder, std::int64_t>({1, 2, 3}, {false, true, false})}});
  const data::Table lone = data::read_parquet(folder.path / "n");
  REQUIRE(lone.rows() == 3);
  CHECK(!lone.word(2, 0));
  write(folder.path / "e", {{"a", column_of<arrow::Int64Builder, std::int64_t>({})}});
  CHECK(data::read_parquet(folder.path / "e").rows() == 0);
}

TEST_CASE("what is no table of words and numbers") {
  const testing::Folder folder;
  check_has(error_of([&] { data::read_parquet(folder.path / "none.parquet"); }), "none.parquet");
  std::ofstream(folder.path / "text.parquet") << "a,b\n1,2\n";
  check_has(error_of([&] { data::read_parquet(folder.path / "text.parquet"); }), "text.parquet: ");
  arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::Int64Builder>());
  REQUIRE(lists.Append().ok());
  REQUIRE(static_cast<arrow::Int64Builder*>(lists.value_builder())->Append(4).ok());
  const auto path = folder.path / "lists.parquet";
  write(path, {{"many", lists.Finish().ValueOrDie()},
               {"one", column_of<arrow::Int64Builder, std::int64_t>({5})}});
  check_has(error_of([&] { data::read_parquet(path); }), "column 'many' is of list");
  CHECK(data::read_parquet(path, {.columns = {"one"}}).number(0, 0) == 5);
  check_has(error_of([&] { data::read_parquet(path, {.columns = {"ones"}}); }),
            "it has no column 'ones', but many, one");
  std::string bytes = testing::content_of(path);
  bytes.resize(bytes.size() / 2);
  std::ofstream(folder.path / "half.parquet") << bytes;
  check_has(error_of([&] { data::read_parquet(folder.path / "half.parquet"); }), "half.parquet: ");
}
