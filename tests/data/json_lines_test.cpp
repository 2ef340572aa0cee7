// SPDX-License-Identifier: Apache-2.0
// JSON lines as a data set: fields as tensors and texts, lines by their places, broken ones named.
#include <peal/data/formats/kept_index.h>
#include <peal/data/shards/json_lines.h>
#include <peal/data/shards/line_index.h>
#include <peal/tests/errors.h>

#include "drawn.h"
#include "tar_files.h"

#include <sys/resource.h>

#include <chrono>

using peal::DType;
using peal::data::JsonLines;
using peal::data::JsonLinesOptions;
using peal::data::JsonRecord;
using peal::data::LineIndex;
using peal::data::OpenFile;
using peal::data::Sample;
using peal::testing::check_has;
using peal::testing::error_of;
using peal::testing::Folder;
using peal::testing::put;
using peal::testing::stderr_of;

namespace {

Sample number_of(const JsonRecord& line, Draw&) { return {Tensor::scalar(line.integer("n")), {}}; }

Samples numbers_in(const Batch& batch) { return batch.x.to_vector<std::int64_t>(); }

std::string refused(const std::string& line, DType dtype) {
  const JsonRecord record(line, "F:1");
  return error_of([&] { record.tensor("x", dtype); });
}

}  // namespace

TEST_CASE("fields of a line are texts, numbers and tensors") {
  const JsonRecord line(R"({"t": "Gr\u00fc\u00dfe", "n": -3, "f": 2.5, "b": true, "z": null,
      "v": [1, 2.5, true], "m": [[1, 2, 3], [4, 5, 6]], "w": ["a", "b"], "e": [],
      "meta": {"lang": "de", "in": {"k": 7}}, "a.b": 1})",
                        "F:3");
  CHECK(line.text("t") ==
        "Gr\xc3\xbc\xc3\x9f"
        "e");
  CHECK(line.integer("n") == -3);
  CHECK(line.number("f") == 2.5);
  CHECK(line.number("n") == -3);
  CHECK(line.truth("b"));
  CHECK(line.text("meta.lang") == "de");
  CHECK(line.integer("meta.in.k") == 7);
  CHECK(line.integer("a.b") == 1);
  CHECK(line.texts("w") == std::vector<std::string>{"a", "b"});
  CHECK(line.has("e"));
  CHECK(!line.has("z"));
  CHECK(!line.has("meta.no"));
  CHECK(line.tensor("v").to_vector<float>() == std::vector<float>{1, 2.5, 1});
  CHECK(line.tensor("m", DType::i64).shape() == peal::Shape{2, 3});
  CHECK(line.tensor("m", DType::i64).to_vector<std::int64_t>() == Samples{1, 2, 3, 4, 5, 6});
  CHECK(line.tensor("n", DType::f64).item<double>() == -3);
  CHECK(line.tensor("f", DType::bf16).dim() == 0);
  CHECK(line.tensor("e").shape() == peal::Shape{0});
  check_has(error_of([] { JsonRecord(" \t[", "F:1"); }),
            "F:1: expected a line of JSON: parse error at column 2:");
  check_has(error_of([&] { line.text("no"); }),
            "[data] F:3: expected a field 'no', found a.b, b, e, f, m, meta, n, t, v, w, z");
  check_has(error_of([&] { line.text("n"); }), "F:3: expected a text in field 'n', got -3");
  check_has(error_of([&] { line.integer("f"); }), "expected an integer in field 'f', got 2.5");
  check_has(error_of([&] { line.truth("n"); }), "expected true or false in field 'n'");
  check_has(error_of([&] { line.texts("v"); }),
            "expected an array of texts in field 'v', got an array of 3");
  check_has(error_of([&] { line.number("meta"); }),
            "expected a number in field 'meta', got an object");
}

TEST_CASE("arrays that are no tensor, and numbers that a type does not hold, are refused") {
  for (const char* ragged :
       {R"({"x": [[1], [1, 2]]})", R"({"x": [1, [2]]})", R"({"x": [[1], 2]})",
        R"({"x": [[], [1]]})", R"({"x": [[1], []]})", R"({"x": ["a"]})", R"({"x": [null]})",
        R"({"x": "1"})", R"({"x": [[[[[[[[[1]]]]]]]]]})"}) {
    check_has(refused(ragged, DType::f32), "expected a number, or an array of numbers");
  }
  check_has(refused(R"({"x": [1, 256]})", DType::u8),
            "numbers that u8 holds in field 'x', got 256");
  check_has(refused(R"({"x": -1})", DType::u8), "got -1");
  check_has(refused(R"({"x": 1.5})", DType::i32), "got 1.5");
  check_has(refused(R"({"x": 3000000000})", DType::i32), "got 3000000000");
  check_has(refused(R"({"x": 18446744073709551615})", DType::i64), "got 18446744073709551615");
  check_has(refused(R"({"x": 1e300})", DType::f32), "got 1e+300");
  check_has(refused(R"({"x": 70000})", DType::f16), "got 70000");
  check_has(refused(R"({"x": 2})", DType::boolean), "got 2");
  CHECK(refused(R"({"x": [-128, 127]})", DType::i8) == "nothing");
  CHECK(refused(R"({"x": 1e300})", DType::f64) == "nothing");
}

TEST_CASE("lines are read by their places, blank ones are none") {
  const Folder folder;
  const std::string a = put(folder.path / "a.jsonl",
                            "\xef\xbb\xbf{\"n\": 0}\r\n\n   \n{\"n\": 1}  \n \t{\"n\": 2}\n\n");
  const std::string b = put(folder.path / "b.jsonl", "{\"n\": 3}\n{\"n\": 4}");
  const std::string none = put(folder.path / "none.jsonl", "\n \r\n");
  const JsonLines set({a, none, b}, number_of);
  CHECK(set.sizes() == Samples{3, 0, 2});
  CHECK(numbers_in(set.get(Samples{4, 0, 1, 3, 2})) == Samples{4, 0, 1, 3, 2});
  CHECK(set.record(2).where() == a + ":5");
  CHECK(set.record(4).where() == b + ":2");
  check_has(error_of([&] { set.get(Samples{5}); }), "5");
  check_has(error_of([&] { JsonLines({none}, number_of); }), "found no line of JSON");
  check_has(error_of([&] { JsonLines({}, number_of); }), "expected files, got none");
  check_has(error_of([&] { JsonLines({a + "x"}, number_of); }), "a.jsonlx: no such file");
  check_has(error_of([&] { JsonLines({put(folder.path / "p", "\x1f\x8b..")}, number_of); }),
            "as it is gzip; unpack it, or read it as a stream (JsonStream)");
}

TEST_CASE("a broken line is named by file and number, counted, and not fatal") {
  const Folder folder;
  const std::string path =
      put(folder.path / "r.jsonl",
          "{\"n\": 0}\n\n{\"n\": 1\n[2]\n{\"n\": 3}\n{\"m\": 4}\n{\"n\": \"\xff\"}\n");
  const auto set = std::make_shared<JsonLines>(std::vector{path}, number_of);
  CHECK(set->size() == 6);
  const auto said = [&](std::int64_t index) { return error_of([&] { set->get(Samples{index}); }); };
  check_has(said(1), "[data] " + path + ":3: expected a line of JSON: parse error at column 8: ");
  check_has(said(2), path + ":4: expected a JSON object, got an array of 1");
  check_has(said(4), path + ":6: expected a field 'n', found m");
  check_has(said(5), path + ":7: expected a line of JSON: parse error");
  const std::string log = stderr_of([&] {
    DataLoader loader(set, {.batch_size = 3, .workers = 2, .max_bad_samples = 4});
    CHECK(flat(epoch_of(loader)) == Samples{0, 3, 3, 3, 3, 3});
    CHECK(loader.bad_samples().size() == 4);
  });
  check_has(log, path + ":6: expected a field 'n', found m");

  const auto own = [](const JsonRecord&, Draw&) -> Sample { throw std::runtime_error("no vowel"); };
  check_has(error_of([&] { JsonLines({path}, own).get(Samples{0}); }), path + ":1: no vowel");
}

TEST_CASE("where lines begin is kept beside a large file, and found again when it grew") {
  const Folder folder;
  std::string text;
  for (int n = 0; n < 60'000; ++n) {
    text += "{\"n\": " + std::to_string(n) + ", \"t\": \"some words\"}\n";
    if (n % 1000 == 0) text += "\n";
  }
  const auto path = folder.path / "large.jsonl";
  put(path, text);
  REQUIRE(text.size() > std::size_t{1} << 20);  // more than is read at a time
  const Samples some{0, 1, 999, 1000, 1001, 30'000, 59'999};
  for (int pass = 0; pass < 2; ++pass) {
    const JsonLines set({path.string()}, number_of, JsonLinesOptions{.keep_index_from = 0});
    CHECK(set.size() == 60'000);
    CHECK(numbers_in(set.get(some)) == some);
    CHECK(set.record(1001).where() == path.string() + ":1004");
    CHECK(std::filesystem::exists(peal::data::index_beside(path)));
  }
  put(path, text + "{\"n\": 60000}\n");
  const JsonLines grown({path.string()}, number_of, JsonLinesOptions{.keep_index_from = 0});
  CHECK(numbers_in(grown.get(Samples{60'000})) == Samples{60'000});
  std::filesystem::resize_file(path, 1000);
  check_has(error_of([&] { grown.get(Samples{60'000}); }), "large.jsonl: it was changed since");

  const OpenFile file(path);
  const LineIndex index = peal::data::line_index(file, 1 << 20);
  const std::string bytes = index.to_bytes();
  const auto again = LineIndex::from_bytes(bytes, 1000);
  REQUIRE(again);
  CHECK(again->to_bytes() == bytes);
  CHECK(!LineIndex::from_bytes(bytes, 10));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    REQUIRE(!LineIndex::from_bytes(std::string_view(bytes).substr(0, cut), 1000));
  }
}

TEST_CASE("more files than may be open are read, named as elsewhere") {
  const Folder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 200; ++i) {
    const std::string path = (folder.path / (std::to_string(i) + ".jsonl")).string();
    paths.push_back("file:" + put(path, "{\"n\": " + std::to_string(i) + "}\n"));
  }
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{120, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  Samples all;
  const std::string failed = error_of([&] {
    const JsonLines set(paths, number_of);
    for (std::int64_t i = 0; i < set.size(); ++i) all.push_back(set.record(i).integer("n"));
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(failed == "nothing");
  CHECK(all == up_to(200));
  check_has(error_of([] { JsonLines({"https://h/a.jsonl"}, number_of); }),
            "'https://h/a.jsonl': expected a path or file:PATH");
}

TEST_CASE("a file that was changed under a set is named") {
  const Folder folder;
  const std::string path = put(folder.path / "a.jsonl", "{\"n\": 10}\n{\"n\": 2}\n");
  const JsonLines set({path}, number_of);
  put(path, "{\"n\": 1}\n{\"n\": 22}\n");
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) + std::chrono::hours(1));
  check_has(error_of([&] { set.get(Samples{1}); }),
            "a.jsonl: it was changed since it was looked through");
}

TEST_CASE("a file that is changed in place while it is read is named, until it is what it was") {
  const Folder folder;
  const std::string path = put(folder.path / "a.jsonl", "{\"n\": 10}\n{\"n\": 2}\n");
  const auto written = std::filesystem::last_write_time(path);
  const JsonLines set({path}, number_of);
  CHECK(numbers_in(set.get(Samples{0})) == Samples{10});
  put(path, "{\"n\": 1}\n{\"n\": 22}\n");
  std::filesystem::last_write_time(path, written + std::chrono::hours(1));
  for (int again = 0; again < 2; ++again) {
    check_has(error_of([&] { set.get(Samples{1}); }),
              "a.jsonl: it was changed since it was looked through");
  }
  put(path, "{\"n\": 10}\n{\"n\": 2}\n");
  std::filesystem::last_write_time(path, written);
  CHECK(numbers_in(set.get(Samples{1})) == Samples{2});
}
