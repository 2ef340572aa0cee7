// SPDX-License-Identifier: Apache-2.0
// Files of tokens, windows of them, and vocabularies of characters.
#include <doctest/doctest.h>
#include <peal/data/loader.h>
#include <peal/data/text/token_file.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace peal;
using data::TokenFile;
using data::TokenIds;
using data::TokenWindows;
using testing::check_has;
using testing::content_of;
using testing::error_of;
using testing::Folder;

namespace {

TokenIds all_of(const TokenFile& file) {
  TokenIds tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("tokens of two and of four bytes come back") {
  const Folder folder;
  for (const std::int64_t vocabulary :
       {std::int64_t{1}, std::int64_t{65536}, std::int64_t{65537}, std::int64_t{1} << 32}) {
    const TokenIds tokens{0, vocabulary / 2, vocabulary - 1, 0};
    data::save_tokens(folder.path / "t", tokens, vocabulary);
    const TokenFile file(folder.path / "t");
    CHECK(file.vocabulary() == vocabulary);
    CHECK(all_of(file) == tokens);
    CHECK(all_of(TokenFile::in_memory(tokens, vocabulary)) == tokens);
    CHECK(content_of(folder.path / "t").size() == 24 + 4 * (vocabulary <= 65536 ? 2 : 4));
    TokenIds middle(2);
    file.read(1, middle);
    CHECK(middle == TokenIds{tokens[1], tokens[2]});
  }
  data::save_tokens(folder.path / "none", {}, 7);
  CHECK(TokenFile(folder.path / "none").size() == 0);
  TokenIds many(700000);  // in several pieces
  std::iota(many.begin(), many.end(), 0);
  data::save_tokens(folder.path / "many", many, 700000);
  CHECK(all_of(TokenFile(folder.path / "many")) == many);
}

TEST_CASE("windows tell each token once, or overlap, for any workers") {
  const Folder folder;
  TokenIds tokens(23);
  std::iota(tokens.begin(), tokens.end(), 0);
  data::save_tokens(folder.path / "t", tokens, 100);
  const auto file = std::make_shared<TokenFile>(folder.path / "t");
  const auto windows = std::make_shared<TokenWindows>(file, 5);
  CHECK(windows->size() == 4);
  for (const int workers : {0, 3}) {
    data::DataLoader loader(windows, {.batch_size = 3, .workers = workers});
    TokenIds x, y;
    for (const auto& [in, out] : loader) {
      const auto a = in.to_vector<std::int64_t>(), b = out.to_vector<std::int64_t>();
      x.insert(x.end(), a.begin(), a.end());
      y.insert(y.end(), b.begin(), b.end());
    }
    CHECK(x == TokenIds(tokens.begin(), tokens.begin() + 20));
    CHECK(y == TokenIds(tokens.begin() + 1, tokens.begin() + 21));
  }
  const TokenWindows close(file, 5, 1);
  CHECK(close.size() == 18);
  const std::vector<std::int64_t> last{17};
  CHECK(close.get(last).y.to_vector<std::int64_t>() == TokenIds{18, 19, 20, 21, 22});
  CHECK(TokenWindows(file, 22).size() == 1);
  const TokenWindows to_end(file, 5, 0, true), gaps(file, 3, 9, true);
  CHECK(to_end.size() == 5);
  const std::vector<std::int64_t> both{3, 4}, rest{2, 3};
  CHECK(to_end.get(both).x.to_vector<std::int64_t>() ==
        TokenIds{15, 16, 17, 18, 19, 17, 18, 19, 20, 21});
  CHECK(to_end.get(both).y.to_vector<std::int64_t>() ==
        TokenIds{16, 17, 18, 19, 20, -100, -100, -100, 21, 22});
  CHECK(gaps.size() == 4);  // from 0, 9, 18 and 19
  CHECK(gaps.get(rest).y.to_vector<std::int64_t>() == TokenIds{19, 20, 21, -100, -100, 22});
  CHECK(TokenWindows(file, 22, 0, true).size() == 1);
  CHECK(TokenWindows(file, 11, 0, true).size() == 2);  // nothing is left over
  check_has(error_of([&] { TokenWindows(file, 23); }),
            "[data] windows of tokens: 23 tokens are too few for one window of 23");
  check_has(error_of([&] { TokenWindows(file, 0); }), "expected a length of at least 1");
  const std::vector<std::int64_t> beyond{18};
  check_has(error_of([&] { close.get(beyond); }), "expected an index from 0 to 17, got 18");
}

TEST_CASE("what is no file of tokens is refused") {
  const Folder folder;
  const auto path = folder.path / "t";
  data::save_tokens(path, TokenIds{1, 2, 3}, 10);
  const std::string whole = content_of(path);
  const auto refused = [&](const std::string& content, const char* words) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    check_has(error_of([&] { all_of(TokenFile(path)); }), words);
  };
  refused("", "expected a file of tokens, of at least 24 bytes, got 0 bytes");
  refused("x" + whole.substr(1), "it does not begin with PEALTOK1");
  refused(whole.substr(0, 28), "expected 3 tokens of 2 bytes, got 4 bytes; the file is truncated");
  refused(whole + "x", "expected 3 tokens of 2 bytes, got 7 bytes");
  std::string other = whole;
  other[8] = 3;
  refused(other, "expected tokens of 2 or 4 bytes, got 3");
  other = whole;
  other[26] = 10;
  refused(other, "token 1 is 10, expected one below 10; the file is damaged");
  other = whole;
  for (int i = 16; i < 24; ++i) other[static_cast<std::size_t>(i)] = '\xff';
  refused(other, "expected -1 tokens of 2 bytes");
  check_has(error_of([&] { TokenFile(folder.path / "no"); }), "cannot open: No such file");
  check_has(error_of([&] { TokenFile{folder.path}; }), "expected a file of tokens");
  check_has(error_of([&] {
              data::save_tokens(path, TokenIds{1, 10}, 10);
            }),
            "token 1 is 10, expected one below 10");
  check_has(error_of([] { TokenFile::in_memory(TokenIds{-1}, 10); }),
            "[data] tokens in memory: token 0 is -1, expected one below 10");
}

TEST_CASE("characters are numbered by their code points") {
  const data::CharacterVocabulary characters("hello w\xc3\xb6rld\n");
  CHECK(characters.size() == 10);
  const TokenIds numbers = characters.encode("h\xc3\xb6\n");
  CHECK(numbers == TokenIds{4, 9, 0});
  CHECK(characters.decode(numbers) == "h\xc3\xb6\n");
  check_has(error_of([&] { characters.encode("x"); }),
            "[data] characters, line 1: 'x' is none of the 10 that the vocabulary has");
  check_has(error_of([&] { characters.encode("hello\n\n\xc3\xa9"); }),
            "[data] characters, line 3: '\xc3\xa9' is none of");
  const Folder folder;
  characters.save(folder.path / "c");
  CHECK(data::CharacterVocabulary::load(folder.path / "c").encode("h\xc3\xb6\n") == numbers);
  std::ofstream(folder.path / "c", std::ios::trunc).flush();
  check_has(error_of([&] { data::CharacterVocabulary::load(folder.path / "c"); }),
            "expected the characters of a vocabulary, got an empty file");
}
