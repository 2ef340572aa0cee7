// SPDX-License-Identifier: Apache-2.0
// Texts: fastai's rules, tokens, vocabularies, batches of a language model and of a classifier.
#include <doctest/doctest.h>
#include <peal/data/batches.h>
#include <peal/data/loader.h>
#include <peal/data/text/language_model_set.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/text_files.h>
#include <peal/data/text/text_set.h>
#include <peal/data/text/tokenizer.h>
#include <peal/data/text/vocabulary.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "rules_cases.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

using namespace peal;
using data::characters_of;
using data::TokenIds;
using data::Tokens;
using data::utf8_of;
using testing::check_has;
using testing::error_of;

TEST_CASE("characters and bytes") {
  for (const std::string text :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "x\n\t"}) {
    CHECK(utf8_of(characters_of(text)) == text);
  }
  const std::string broken = "\xef\xbf\xbd";  // U+FFFD
  CHECK(utf8_of(characters_of("a\xff"
                              "b")) == "a" + broken + "b");
  CHECK(utf8_of(characters_of("\xc3")) == broken);
  CHECK(utf8_of(characters_of("\xed\xa0\x80")) == broken + broken + broken);
  CHECK(utf8_of(characters_of("\xc0\x80")) == broken + broken);
  for (char32_t c = 0; c < 0x110000; c += c < 0x500 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    REQUIRE(characters_of(utf8_of({&c, 1})) == data::Characters(1, c));
  }
  CHECK(utf8_of(data::in_small_letters(characters_of("ÀÉÑ×ÞŁŻ ΑΣΩΆ ЀАЯ ß"))) ==
        "àéñ×þłż ασωά ѐая ß");
}

TEST_CASE("rules, as fastai's regular expressions have them") {
  for (const auto& [rule, in, out] : rules_cases) {
    const auto by = [&](data::Characters (*f)(const data::Characters&)) {
      return utf8_of(f(characters_of(in)));
    };
    const std::string name = rule;
    INFO(name, ": ", in);
    const std::string got = name == "fix_html"            ? data::fix_html(in)
                            : name == "replace_rep"       ? by(data::replace_rep)
                            : name == "replace_wrep"      ? by(data::replace_wrep)
                            : name == "spec_add_spaces"   ? by(data::spec_add_spaces)
                            : name == "rm_useless_spaces" ? by(data::rm_useless_spaces)
                            : name == "replace_all_caps"  ? by(data::replace_all_caps)
                            : name == "replace_maj"       ? by(data::replace_maj)
                                                          : data::apply_rules(in);
    CHECK(got == std::string(out));
  }
}

TEST_CASE("texts are cut into words, contractions, numbers and marks") {
  const auto cut = [](const char* text, const Tokens& tokens) {
    INFO(text);
    CHECK(data::cut_into_words(text) == tokens);
  };
  cut("it's well-done, isn't it?", {"it", "'s", "well", "-", "done", ",", "is", "n't", "it", "?"});
  cut("3.5% of 1,000. a1 2nd", {"3.5", "%", "of", "1,000", ".", "a1", "2nd"});
  cut("o'clock 'tis dogs' x'", {"o'clock", "'", "tis", "dogs", "'", "x", "'"});
  cut("we\xe2\x80\x99ll (caf\xc3\xa9)", {"we", "\xe2\x80\x99ll", "(", "caf\xc3\xa9", ")"});
  cut(" \n\t ", {});
  CHECK(data::tokenize("Such a GREAT film!!!! I'd say") ==
        Tokens{"xxbos", "xxmaj", "such", "a", "xxup", "great", "film", "xxrep", "4", "!", "xxmaj",
               "i", "'d", "say"});
}

TEST_CASE("many texts by several threads are the same") {
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) texts.push_back(concat("Text ", i, " is GREAT, isn't it ", i, "?"));
  const auto tokens = data::tokenize_all(texts);
  REQUIRE(tokens.size() == 50);
  CHECK(tokens[7] == data::tokenize(texts[7]));
  const data::Vocabulary vocabulary(tokens, {.min_count = 1});
  const auto numbers = vocabulary.numbers_of_all(tokens);
  for (const int threads : {2, 5, 100}) {
    CHECK(data::tokenize_all(texts, threads) == tokens);
    CHECK(vocabulary.numbers_of_all(tokens, threads) == numbers);
  }
  CHECK(data::tokenize_all({}, 3).empty());
}

TEST_CASE("a vocabulary is of what comes often, behind the special tokens, a multiple of eight") {
  const std::vector<Tokens> texts{{"b", "a", "a", "b", "c"}, {"c", "a", "xxmaj", "d", "xxfake"}};
  const data::Vocabulary vocabulary(texts, {.min_count = 2});
  CHECK(vocabulary.size() == 16);
  const Tokens words = vocabulary.words();
  CHECK(Tokens(words.begin(), words.begin() + 13) == Tokens{"xxunk", "xxpad", "xxbos", "xxeos",
                                                            "xxfld", "xxrep", "xxwrep", "xxup",
                                                            "xxmaj", "a", "b", "c", "xxfake"});
  CHECK(vocabulary.numbers({"a", "d", "xxmaj", "c", "xxfake", "xxpad"}) ==
        TokenIds{9, 0, 8, 11, 0, 1});
  CHECK(vocabulary.tokens({9, 0}) == Tokens{"a", "xxunk"});
  CHECK(data::Vocabulary(texts, {.max_size = 10, .min_count = 1}).words()[9] == "a");
  CHECK(data::Vocabulary(texts, {.max_size = 10, .min_count = 1}).words()[10] == "xxfake");
  const testing::Folder folder;
  vocabulary.save(folder.path / "words");
  CHECK(data::Vocabulary::load(folder.path / "words").words() == words);
  check_has(error_of([&] { vocabulary.tokens({16}); }), "expected a number from 0 to 15, got 16");
  check_has(error_of([&] { data::Vocabulary(texts, {.max_size = 3}); }), "at least 9");
  check_has(error_of([&] { data::Vocabulary::of_words({"a"}); }),
            "expected the word 'xxunk' at place 0, got 'a'");
  Tokens twice = words;
  twice[10] = "a";
  check_has(error_of([&] { data::Vocabulary::of_words(twice); }),
            "the word 'a' stands at places 9 and 10");
}

TEST_CASE("batches of a language model go on where they ended, as fastai's") {
  // fastai's LMDataLoader of these texts, bs 4, seq_len 3 (its own example).
  const std::vector<TokenIds> texts{
      {0, 1, 2, 3, 4}, {5, 6, 7, 8, 9, 10}, {11, 12, 13, 14, 15, 16, 17, 18}, {19, 20}, {21, 22}};
  const auto set = std::make_shared<data::LanguageModelSet>(
      texts, data::LanguageModelOptions{.batch_size = 4, .seq_len = 3, .shuffle = false});
  CHECK(set->size() == 8);
  data::DataLoader loader(set, {.batch_size = 4});
  std::vector<TokenIds> x, y;
  for (const auto& [in, out] : loader) {
    x.push_back(in.to_vector<std::int64_t>());
    y.push_back(out.to_vector<std::int64_t>());
  }
  CHECK(x == std::vector<TokenIds>{{0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17},
                                   {3, 4, 8, 9, 13, 14, 18, 19}});
  CHECK(y == std::vector<TokenIds>{{1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18},
                                   {4, 5, 9, 10, 14, 15, 19, 20}});
  const std::vector<std::int64_t> mixed{0, 4};
  check_has(error_of([&] { set->get(mixed); }),
            "[data] language model: sample 4 has 2 tokens and sample 0 3; take batches of 4");
  check_has(error_of([&] {
              data::LanguageModelSet({{1, 2, 3, 4}}, {.batch_size = 4});
            }),
            "4 tokens are too few for 4 rows");
}

TEST_CASE("each epoch has texts in another order, the same on any ranks and workers") {
  std::vector<TokenIds> texts;
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < 23; ++i) {
    texts.emplace_back();
    for (std::int64_t k = 0; k < i * 7 % 11; ++k) texts.back().push_back(token++);
  }
  const auto set = std::make_shared<data::LanguageModelSet>(
      texts, data::LanguageModelOptions{.batch_size = 6, .seq_len = 4});
  // All rows, each as one stream of its tokens.
  const auto epoch_of = [&](int world, int workers, std::int64_t epoch) {
    std::vector<TokenIds> rows(6);
    for (int rank = 0; rank < world; ++rank) {
      data::DataLoader loader(set, {.batch_size = 6,
                                    .shard = Place{rank, world},
                                    .way = data::Way::split,
                                    .seed = 5,
                                    .workers = workers});
      loader.set_epoch(epoch);
      for (const auto& [x, y] : loader) {
        const auto tokens = x.to_vector<std::int64_t>();
        const auto count = static_cast<std::size_t>(x.size(0)), length = tokens.size() / count;
        for (std::size_t r = 0; r < count; ++r) {
          TokenIds& row = rows[static_cast<std::size_t>(rank) * count + r];
          const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(r * length);
          row.insert(row.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
        }
      }
    }
    return rows;
  };
  const auto first = epoch_of(1, 0, 0);
  CHECK(epoch_of(1, 3, 0) == first);
  for (const int world : {2, 3, 6}) CHECK(epoch_of(world, 2, 0) == first);
  CHECK(epoch_of(1, 0, 1) != first);
  CHECK(epoch_of(3, 2, 1) == epoch_of(1, 0, 1));
  std::set<std::int64_t> seen;
  for (const TokenIds& row : first) seen.insert(row.begin(), row.end());
  CHECK(std::ssize(seen) == (token - 1) / 6 * 6);  // none twice
}

TEST_CASE("texts with classes are padded on the left") {
  const data::TextSet set({{2, 9}, {2, 9, 10, 11}, {2}}, {1, 0, 1});
  const std::vector<std::int64_t> all{0, 1, 2};
  const data::Batch batch = set.get(all);
  CHECK(batch.x.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 1, 2, 9, 2, 9, 10, 11, 1, 1, 1, 2});
  CHECK(batch.y.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0, 1});
  CHECK(batch["lengths"].to_vector<std::int64_t>() == set.lengths());
  check_has(error_of([] {
              data::TextSet({{1}}, {0, 1});
            }),
            "expected a class for each of 1 texts, got 2");
  CHECK(!data::TextSet({{1}, {2, 3}}, {}).get(std::vector<std::int64_t>{0, 1}).y.defined());
}

TEST_CASE("texts padded by parts begin where a part does, and all reach into the last one") {
  // Of 4, 9, 8 and 1 tokens, by parts of 4.
  const data::TextSet set(
      {{2, 9, 9, 9}, {2, 9, 9, 9, 8, 8, 8, 8, 7}, {2, 9, 9, 9, 8, 8, 8, 8}, {2}}, {0, 1, 2, 3},
      data::pad_parts(4));
  const std::vector<std::int64_t> all{0, 1, 2, 3}, without_longest{0, 2, 3}, alone{3};
  const data::Batch batch = set.get(all);
  CHECK(batch.x.shape() == Shape{4, 12});
  CHECK(batch.x.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 9, 9, 9, 8, 8, 8, 8, 7, 1, 1, 1,  //
                                  1, 1, 1, 1, 2, 9, 9, 9, 8, 8, 8, 8,  //
                                  1, 1, 1, 1, 1, 1, 1, 1, 2, 9, 9, 9,  //
                                  1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1});
  CHECK(batch.y.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 0, 3});
  CHECK(batch["lengths"].to_vector<std::int64_t>() == std::vector<std::int64_t>{9, 8, 4, 1});
  CHECK(batch["order"].to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 0, 3});
  CHECK(set.get(without_longest).x.shape() == Shape{3, 8});
  CHECK(set.get(alone).x.shape() == Shape{1, 1});
  check_has(error_of([] { data::pad_parts(0); }), "expected parts of at least one token");
}

TEST_CASE("texts lie in folders, archives and CSV files") {
  const testing::Folder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder.path / name).parent_path());
    std::ofstream(folder.path / name) << text;
  };
  write("set/train/b/2.txt", "two");
  write("set/train/b/deep/1.txt", "one");
  write("set/train/a/3.txt", "three");
  write("set/train/a/3.md", "no text");
  write("set/train/beside.txt", "of no class");
  const data::TextFiles found = data::read_texts(folder.path / "set", "train");
  CHECK(found.texts == std::vector<std::string>{"three", "two", "one"});
  CHECK(found.labels == std::vector<std::string>{"a", "b", "b"});
  CHECK(found.sources[2] == (folder.path / "set/train/b/deep/1.txt").string());
  CHECK(found.classes() == std::vector<std::string>{"a", "b"});
  CHECK(found.class_numbers({"b", "a"}) == std::vector<std::int64_t>{1, 0, 0});
  check_has(error_of([&] { found.class_numbers({"b"}); }),
            "'a' is no class of the set: it knows b");
  const data::TextFiles flat = data::read_texts(folder.path / "set/train/b/deep");
  CHECK(flat.texts == std::vector<std::string>{"one"});
  check_has(error_of([&] { flat.classes(); }), "expected texts with classes");
  write("set/train.csv", "text,label\n\"a, b\",x\nc,y\n");
  const data::TextFiles rows = data::read_texts(folder.path / "set", "train");
  CHECK(rows.texts == std::vector<std::string>{"a, b", "c"});
  CHECK(rows.labels == std::vector<std::string>{"x", "y"});
  CHECK(rows.sources[1] == (folder.path / "set/train.csv").string() + ", line 3");
  check_has(error_of([&] { data::read_texts(folder.path / "set", "valid"); }),
            "no such folder of texts, nor");
  check_has(error_of([&] { data::read_texts(folder.path / "set/train.csv", "test"); }),
            "expected a folder or archive with test/ or test.csv in it, got a file");
}

TEST_CASE("a table of texts is told by its name, packed too, and what is no text is refused") {
  const testing::Folder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder.path / name, std::ios::binary) << bytes;
    return folder.path / name;
  };
  for (const char* name : {"a.csv", "A.CSV", "a.csv.gz"}) {
    CHECK(data::read_texts(write(name, "text\nfine\n")).texts == std::vector<std::string>{"fine"});
  }
  check_has(error_of([&] { data::read_texts(write("a.txt.gz", "\x1f\x8b\x08")); }),
            "a.txt.gz: expected a text, got gzip; unpack it");
  check_has(error_of([&] { data::read_texts(write("a.zip", std::string("PK\3\4\0\0", 6))); }),
            "a.zip: expected a text, a folder of .txt files, an archive (.tar, .tar.gz) or a CSV "
            "file (.csv, .csv.gz), got a file with zero bytes in it");
}
