// SPDX-License-Identifier: Apache-2.0
// Byte pairs: GPT-2's words and numbers, merges that are learnt, and texts of any bytes.
#include <doctest/doctest.h>
#include <peal/data/text/byte_pairs.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "byte_pairs_cases.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

using peal::data::BytePairs;
using peal::data::TokenIds;
using peal::testing::check_has;
using peal::testing::error_of;
namespace fs = std::filesystem;

namespace {

std::string merges_of(const BytePairs& pairs) {
  const peal::testing::Folder folder;
  pairs.save(folder.path / "merges");
  const std::string text = peal::testing::content_of(folder.path / "merges");
  CHECK(text.starts_with("#version: 0.2\n"));
  CHECK(BytePairs::load(folder.path / "merges").size() == pairs.size());
  return text.substr(text.find('\n') + 1);
}

}  // namespace

TEST_CASE("words and numbers are GPT-2's") {
  const BytePairs pairs = BytePairs::parse(learnt_merges, "M");
  for (const auto& [text, words, numbers] : byte_pairs_cases) {
    INFO(text);
    const auto cut = peal::data::cut_for_byte_pairs(text);
    CHECK(std::vector<std::string>(cut.begin(), cut.end()) == words);
    CHECK(pairs.encode(text) == numbers);
    CHECK(pairs.decode(numbers) == text);
  }
}

TEST_CASE("pairs are learnt in the order of how often they come") {
  const BytePairs pairs = BytePairs::train(training_texts, 60);
  CHECK(merges_of(pairs) == learnt_merges);
  CHECK(BytePairs::train(training_texts, 0).size() == 257);
  CHECK(BytePairs::train(training_texts, 100000).size() < 500);  // until no pair comes twice
  CHECK(merges_of(BytePairs::train({}, 5)).empty());
}

TEST_CASE("every text has numbers, and comes back from them") {
  const BytePairs pairs = BytePairs::parse(learnt_merges, "M");
  std::uint32_t state = 7;
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) {
    texts.emplace_back();
    for (int k = 0; k < i; ++k) {
      state = state * 1664525 + 1013904223;
      // Half of them of bytes that merge.
      texts.back() += i % 2 == 0 ? static_cast<char>(state >> 24) : "the cat"[(state >> 24) % 7];
    }
  }
  texts.emplace_back(200000, 'a');  // a word without end takes no time without end
  const auto numbers = pairs.encode_all(texts);
  CHECK(pairs.encode_all(texts, 4) == numbers);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(pairs.decode(numbers[i]) == texts[i]);
    std::string joined;
    for (const std::string_view word : peal::data::cut_for_byte_pairs(texts[i])) joined += word;
    CHECK(joined == texts[i]);
  }
  CHECK(pairs.decode({pairs.end_of_text()}) == "<|endoftext|>");
  CHECK(pairs.size() == pairs.end_of_text() + 1);
}

TEST_CASE("what is no file of merges is refused, with the line") {
  const auto refused = [](const char* text, const char* words) {
    check_has(error_of([&] { BytePairs::parse(text, "M"); }), words);
  };
  CHECK(BytePairs::parse("#version: 0.2\r\na b\r\n\r\nab c", "M").token(257) == "abc");
  refused("a b\nab\n", "[data] M, line 2: expected two words, got 'ab'");
  refused("a b c\n", "line 1: expected two words");
  refused("a \xe2\x82\xac\n", "line 1: '\xe2\x82\xac' is no character that stands for a byte");
  refused("ab c\n", "merge 0 is of 'ab' and 'c', of which 'ab' is no token before it");
  refused("a b\nb c\na bc\nab c\n", "merge 3 makes 'abc', which is a token before it");
  const BytePairs none(std::vector<BytePairs::Merge>{});
  check_has(error_of([&] { none.decode({257}); }),
            "expected the number of a token, 0 to 255, got 257");
}

TEST_CASE("GPT-2's own merges, where they are") {
  const char* const named = std::getenv("PEAL_TEST_DATA");
  const fs::path file = fs::path(named != nullptr ? named : "") / "gpt2" / "vocab.bpe";
  if (!fs::exists(file)) {
    MESSAGE("SKIPPED: no GPT-2 merges; set PEAL_TEST_DATA to a folder with gpt2/vocab.bpe in it");
    return;
  }
  const BytePairs pairs = BytePairs::load(file);
  CHECK(pairs.size() == 50257);
  CHECK(pairs.encode("Hello world") == TokenIds{15496, 995});
  CHECK(pairs.encode("Hello, I'm a language model,") ==
        TokenIds{15496, 11, 314, 1101, 257, 3303, 2746, 11});
}
