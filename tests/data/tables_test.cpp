// SPDX-License-Identifier: Apache-2.0
// Tables: words and numbers of cells, what is learnt from training rows, and rows as tensors.
#include <doctest/doctest.h>
#include <peal/data/tables/encoded.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

using namespace peal;
using data::Table;
using data::TableColumns;
using data::TableStatistics;
using testing::check_has;
using testing::error_of;
using testing::stderr_of;

namespace {

Table table(const std::string& text) {
  return Table(data::parse_csv({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                               "people.csv"));
}

const std::string people =
    "job,age,height,earns\n"
    "smith,30,1.5,yes\n"
    " baker ,,1.75,no\n"
    "NA,50,2,yes\n"
    "baker,41,1.75,no\n";
const TableColumns columns{.categories = {"job"}, .numbers = {"age", "height"}, .target = "earns"};

}  // namespace

TEST_CASE("cells are words, numbers, or missing") {
  const Table t = table(people);
  CHECK(t.rows() == 4);
  CHECK(t.column("height") == 2);
  CHECK(t.word(1, 0) == "baker");
  CHECK(!t.word(2, 0));
  CHECK(t.number(0, 2) == 1.5);
  CHECK(!t.number(1, 1));
  CHECK(table("a\n+1e3\n").number(0, 0) == 1000);
  for (const char* word : {"x", "1x", "1 2", "+", "inf", "0x10", "1e999"}) {
    check_has(error_of([&] { table(concat("a\n1\n", word, "\n")).number(1, 0); }),
              concat("[data] people.csv, line 3, column 'a': expected a number, got '", word, "'"));
  }
  check_has(error_of([&] { t.column("Job"); }),
            "[data] people.csv: it has no column 'Job', but job, age, height, earns");
  Table changed = t;
  changed.map("earns", [](std::string_view word) { return word == "yes" ? "1" : "0"; });
  CHECK(changed.word(0, 3) == "1");
  CHECK(t.word(0, 3) == "yes");
}

TEST_CASE("statistics of training rows, as fastai has them") {
  const TableStatistics found = data::statistics_of(table(people), columns);
  CHECK(found.categories == std::vector<data::Categories>{{"job", {"baker", "smith"}}});
  CHECK(found.target == data::Categories{"earns", {"no", "yes"}});
  CHECK(found.cardinalities() == std::vector<std::int64_t>{3, 3});  // job, and whether age is there
  const data::Scaling& age = found.numbers[0];
  CHECK(age.median == 41);  // of 30, 41, 50
  CHECK(age.has_missing);
  CHECK(age.mean == 40.5);
  const double squares = 10.5 * 10.5 + 0.5 * 0.5 + 9.5 * 9.5 + 0.5 * 0.5;
  CHECK(age.deviation == doctest::Approx(std::sqrt(squares / 4) + 1e-7).epsilon(1e-15));
  CHECK(found.numbers[1].median == 1.75);
  CHECK(!found.numbers[1].has_missing);
  const std::vector<std::int64_t> some{0, 3};
  const TableStatistics of_some = data::statistics_of(table(people), columns, some);
  CHECK(of_some.numbers[0].median == 35.5);
  CHECK(!of_some.numbers[0].has_missing);
  // fastai's emb_sz_rule
  std::vector<std::int64_t> widths;
  for (const int codes : {1, 2, 3, 9, 10, 17, 43, 1000, 100000}) {
    widths.push_back(data::embedding_width(codes));
  }
  CHECK(widths == std::vector<std::int64_t>{2, 2, 3, 5, 6, 8, 13, 77, 600});
  CHECK(data::embedding_sizes(found) ==
        std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 3}, {3, 3}});
}

TEST_CASE("rows as tensors, also rows that were never seen") {
  const TableStatistics statistics = data::statistics_of(table(people), columns);
  const auto set = data::encoded(table(people), statistics);
  CHECK(set->rows().x.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 1, 1, 2, 0, 1, 1, 1});
  CHECK(set->rows().y.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0, 1, 0});
  const auto numbers = set->rows()["numbers"].to_vector<float>();
  const double deviation = statistics.numbers[0].deviation;
  CHECK(numbers[0] == static_cast<float>((30 - 40.5) / deviation));
  CHECK(numbers[2] == static_cast<float>(0.5 / deviation));  // the median, for what is missing
  const std::vector<std::int64_t> last{3};
  CHECK(set->get(last)["numbers"].shape() == Shape{1, 2});

  std::shared_ptr<const data::TensorDataset> unseen;
  const std::string told = stderr_of([&] {
    unseen = data::encoded(table("earns,height,age,job\nno,1,2,smith\nyes,1,2,tailor\nyes,1,2,"
                                 "cook\nyes,1,2,\n"),
                           statistics);
  });
  CHECK(unseen->rows().x.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 1, 0, 1, 0, 1, 0, 1});
  check_has(told,
            "[data] people.csv, line 3, column 'job': 'tailor' is none of the 2 words that "
            "training had; 2 of 4 cells there are so, and count as missing");
  const auto refused = [&](const std::string& rows, const char* words) {
    check_has(error_of([&] { data::encoded(table("job,age,height,earns\n" + rows), statistics); }),
              words);
  };
  refused("smith,1,,no\n",
          "people.csv, line 2, column 'height': the number is missing, and no row");
  refused("smith,1,2,maybe\n",
          "people.csv, line 2, column 'earns': expected one of 'no', 'yes', got 'maybe'");
  refused("smith,1,2,\n", "line 2, column 'earns': it is missing");
  refused("smith,old,2,no\n", "line 2, column 'age': expected a number, got 'old'");
  check_has(error_of([&] { data::encoded(table("job\nsmith\n"), statistics); }),
            "it has no column 'age', but job");
}

TEST_CASE("rows that nobody has judged yet have no target, and all else") {
  const TableStatistics statistics = data::statistics_of(table(people), columns);
  const auto judged = data::encoded(table("job,age,height,earns\nsmith,30,2,no\n"), statistics);
  const auto asked = data::encoded(table("job,age,height\nsmith,30,2\n"), statistics);
  CHECK(judged->rows().y.defined());
  CHECK(!asked->rows().y.defined());
  CHECK(asked->rows().x.to_vector<std::int64_t>() == judged->rows().x.to_vector<std::int64_t>());
  CHECK(asked->rows()["numbers"].to_vector<float>() ==
        judged->rows()["numbers"].to_vector<float>());
  // But a target that is misspelt is none that nobody has judged.
  for (const char* name : {"Earns", "earn", "ears", "EARNS", "eanrs", "Earn"}) {
    check_has(
        error_of([&] {
          data::encoded(table(concat("job,age,height,", name, "\nsmith,30,2,no\n")), statistics);
        }),
        concat("[data] people.csv: it has no column 'earns', which is the target, but '", name,
               "', which is nothing; give it the target's name"));
  }
  for (const char* name : {"burns", "id", "age2"}) {  // a column of its own
    CHECK(!data::encoded(table(concat("job,age,height,", name, "\nsmith,30,2,no\n")), statistics)
               ->rows()
               .y.defined());
  }
  // What is looked at for something else, is no target.
  const TableStatistics close =
      data::statistics_of(table("waged,waged2\n1,x\n"),
                          {.categories = {"waged2"}, .target = "waged", .target_is_number = true});
  CHECK(!data::encoded(table("waged2\nx\n"), close)->rows().y.defined());
  // Nothing is learnt from such a table.
  TableColumns of = columns;
  for (const bool is_number : {false, true}) {
    of.target_is_number = is_number;
    check_has(error_of([&] { data::statistics_of(table("job,age,height\nsmith,30,2\n"), of); }),
              "it has no column 'earns'");
  }
}

TEST_CASE("a number as the target, and none") {
  const TableStatistics statistics = data::statistics_of(
      table(people), {.numbers = {"height"}, .target = "age", .target_is_number = true},
      std::vector<std::int64_t>{0, 2});
  const auto set = data::encoded(table("height,age\n1,2.5\n"), statistics);
  CHECK(set->rows().x.shape() == Shape{1, 0});
  CHECK(set->rows().y.to_vector<float>() == std::vector<float>{2.5f});
  const TableStatistics bare = data::statistics_of(table(people), {.categories = {"job"}});
  CHECK(!data::encoded(table("job\nsmith\n"), bare)->rows().y.defined());
}

TEST_CASE("what nothing can be learnt from") {
  const auto refused = [](const std::string& text, const TableColumns& of, const char* words) {
    check_has(error_of([&] { data::statistics_of(table(text), of); }), words);
  };
  refused("a\n", {.numbers = {"a"}}, "[data] people.csv: there is no row to learn from");
  refused("a,b\n,1\n", {.numbers = {"a"}}, "column 'a' has no number at all in 1 training rows");
  refused("a\n1\n", {.categories = {"a"}, .numbers = {"a"}}, "'a' comes twice");
  refused("a\n\"\"\n", {.target = "a"}, "line 2, column 'a': it is missing");
}

TEST_CASE("statistics are saved beside a model and come back as they were") {
  const testing::Folder folder;
  TableStatistics statistics = data::statistics_of(table(people), columns);
  statistics.numbers[0].mean = 0.1 + 0.2;
  data::save_statistics(folder.path / "t.json", statistics);
  CHECK(data::load_statistics(folder.path / "t.json") == statistics);
  CHECK(folder.entries() == 1);
  statistics.categories[0].words[0] = "caf\xe9";
  check_has(error_of([&] { data::save_statistics(folder.path / "t.json", statistics); }),
            "a word of the table is no UTF-8");
  CHECK(data::load_statistics(folder.path / "t.json").categories[0].words[0] == "baker");
  const auto refused = [&](const std::string& text, const char* words) {
    const std::string message = error_of([&] { data::parse_statistics(text, "S"); });
    check_has(message, "[data] S: not the statistics of a table that peal saved: ");
    check_has(message, words);
  };
  refused("", "parse error");
  refused("{}", "format");
  refused(R"({"format":"peal table statistics 2"})", "another format");
  std::string whole = testing::content_of(folder.path / "t.json");
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = whole;
    return text.replace(text.find(what), what.size(), instead);
  };
  refused(with("\"baker\"", "\"zebra\""), "the words of column 'job' are not sorted");
  refused(with("\"deviation\": ", "\"deviation\": -"), "the scaling of column 'age' is no scaling");
  refused(with("\"baker\"", "7"), "type must be string");
}
