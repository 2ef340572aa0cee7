// SPDX-License-Identifier: Apache-2.0
// CSV: quotes, line ends and names; what is wrong with a file is named by its line.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/csv.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

using peal::data::Csv;
using peal::data::CsvOptions;
using peal::testing::check_has;
using peal::testing::error_of;
using peal::testing::Folder;
using Rows = std::vector<std::vector<std::string>>;

namespace {

Csv parse(const std::string& text, const CsvOptions& options = {}) {
  return peal::data::parse_csv({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                               "F", options);
}

Rows rows_of(const Csv& csv) {
  Rows rows;
  for (std::int64_t row = 0; row < csv.rows(); ++row) {
    rows.emplace_back();
    for (std::int64_t column = 0; column < csv.columns(); ++column) {
      rows.back().emplace_back(csv.cell(row, column));
    }
  }
  return rows;
}

void refused(const std::string& text, const char* words, const CsvOptions& options = {}) {
  INFO(text);
  check_has(error_of([&] { parse(text, options); }), words);
}

}  // namespace

TEST_CASE("cells, quotes and line ends of every kind") {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    for (const std::string& last : {std::string(), end, end + end}) {
      const Csv csv =
          parse("a,b" + end + "1,2" + end + end + "\"x,\"\"y\"\"\",\"\"" + end + ",z" + last);
      CHECK(csv.names() == std::vector<std::string>{"a", "b"});
      CHECK(rows_of(csv) == Rows{{"1", "2"}, {"x,\"y\"", ""}, {"", "z"}});
      CHECK(csv.line(0) == 2);
      CHECK(csv.line(1) == 4);
      CHECK(csv.line(2) == 5);
      CHECK(csv.name() == "F");
    }
  }
  CHECK(rows_of(parse("a\n\"1\n2\r\n3\"\n4\n")) == Rows{{"1\n2\r\n3"}, {"4"}});
  CHECK(parse("a\n\"1\n2\r\n3\"\n4\n").line(1) == 5);
  CHECK(parse("\xef\xbb\xbf"
              "a,b\n")
            .names()[0] == "a");
  CHECK(rows_of(parse("a,b\n1,")) == Rows{{"1", ""}});
  CHECK(parse("a,b").rows() == 0);
}

TEST_CASE("names from outside, other separators, blanks behind them") {
  CHECK(rows_of(parse("1, 2\n", {.names = {"a", "b"}})) == Rows{{"1", " 2"}});
  CHECK(rows_of(parse("1,  2\n 3, \"x\"\n", {.names = {"a", "b"}, .skip_initial_space = true})) ==
        Rows{{"1", "2"}, {"3", "x"}});
  CHECK(rows_of(parse("a;b\n1,5;2\n", {.separator = ';'})) == Rows{{"1,5", "2"}});
  CHECK(rows_of(parse("a\tb\n1\t\n", {.separator = '\t', .skip_initial_space = true})) ==
        Rows{{"1", ""}});
}

TEST_CASE("lines that begin as a comment are left out, and counted") {
  const CsvOptions options{.names = {"a", "b"}, .comment = '|'};
  const std::string text = "|1x3 \"no row\r\n1,|2\n|\n3,4\n|end";
  const auto csv = peal::data::parse_csv(
      std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), "F", options);
  REQUIRE(csv.rows() == 2);
  CHECK(csv.cell(0, 1) == "|2");
  CHECK(csv.line(1) == 4);
}

TEST_CASE("damage is named by its line") {
  refused("a,b\n1,2\n\n3\n4,5\n", "[data] F, line 4: expected 2 cells, as line 1 has, got 1");
  refused("a,b\n1,2,3\n", "F, line 2: expected 2 cells, as line 1 has, got 3");
  refused("1,2\n", "F, line 1: expected 3 cells, as there are names, got 2",
          {.names = {"a", "b", "c"}});
  refused("a\n\"1\n2", "F, line 2: a quote that is opened here is not closed");
  refused("a\nx\"y\"\n", "F, line 2: a quote within a cell that does not begin with one");
  refused("a\n\"x\ny\"z\n",
          "F, line 3: expected a separator or the line's end behind a closing "
          "quote, got 'z'");
  refused("", "F: expected a first row with the names of the columns, got no row at all");
  refused("\n\r\n", "got no row at all");
  refused("a,b,a\n", "F: two columns are called 'a'");
  refused("a\n", "the separator is a quote", {.separator = '"'});
}

TEST_CASE("a file, packed or not, and one that is not there") {
  const peal::testing::Folder folder;
  std::ofstream(folder.path / "t.csv") << "a,b\n1,2\n";
  CHECK(rows_of(peal::data::read_csv(folder.path / "t.csv")) == Rows{{"1", "2"}});
  REQUIRE(std::system(("gzip -k '" + (folder.path / "t.csv").string() + "'").c_str()) == 0);
  CHECK(rows_of(peal::data::read_csv(folder.path / "t.csv.gz")) == Rows{{"1", "2"}});
  std::filesystem::resize_file(folder.path / "t.csv.gz", 25);
  check_has(error_of([&] { peal::data::read_csv(folder.path / "t.csv.gz"); }),
            "its gzip stream is cut short");
  check_has(error_of([&] { peal::data::read_csv(folder.path / "u.csv"); }), "no such file");
}

TEST_CASE("what has no size is read to its end") {
  const Folder folder;
  const auto pipe = folder.path / "pipe.csv";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string text = "n\n";
  for (int row = 0; row < 50'000; ++row) text += std::to_string(row) + "\n";
  std::jthread writer([&] { std::ofstream(pipe, std::ios::binary) << text; });
  const auto csv = peal::data::read_csv(pipe);
  writer.join();
  REQUIRE(csv.rows() == 50'000);
  CHECK(csv.cell(49'999, 0) == "49999");
}

TEST_CASE("a long file, whose pieces end anywhere") {
  std::string text = "a,b\n";
  Rows expected;
  for (int i = 0; i < 30000; ++i) {
    expected.push_back(
        {std::to_string(i), "x\"" + std::string(static_cast<std::size_t>(i % 7), ',')});
    text += expected.back()[0] + ",\"x\"\"" + expected.back()[1].substr(2) + "\"\r\n";
  }
  CHECK(rows_of(parse(text)) == expected);
}
