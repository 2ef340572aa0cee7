// SPDX-License-Identifier: Apache-2.0
#include <peal/data/in_parallel.h>
#include <peal/data/text/letters.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/tokenizer.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace peal::data {
namespace {

constexpr char32_t right_quote = 0x2019;

bool is_apostrophe(char32_t c) { return c == '\'' || c == right_quote; }

// Endings that stand behind an apostrophe.
constexpr std::array<std::u32string_view, 6> endings{U"s", U"re", U"ve", U"ll", U"d", U"m"};

// A word's letters, and what ends it behind an apostrophe: "it" and "'s", "do" and "n't". Returns
// where it ends.
std::size_t cut_word(std::u32string_view text, std::size_t begin, Tokens& tokens) {
  const auto end_of_letters = [&](std::size_t at) {
    while (at < text.size() && is_of_word(text[at])) ++at;
    return at;
  };
  std::size_t end = end_of_letters(begin);
  const auto add = [&](std::size_t from, std::size_t to) {
    if (from < to) tokens.push_back(utf8_of(text.substr(from, to - from)));
  };
  if (end < text.size() && is_apostrophe(text[end])) {
    const std::size_t behind = end_of_letters(end + 1);
    const Characters ending = in_small_letters(Characters(text.substr(end + 1, behind - end - 1)));
    const bool negated = ending == U"t" && end - begin >= 2 && small_letter(text[end - 1]) == 'n';
    const bool known = std::find(endings.begin(), endings.end(), ending) != endings.end();
    if (negated || known) {
      add(begin, negated ? end - 1 : end);
      add(negated ? end - 1 : end, behind);
      return behind;
    }
    if (!ending.empty()) end = behind;  // o'clock
  }
  add(begin, end);
  return end;
}

// Digits, with points and commas between them: 3.5, 1,000.
std::size_t end_of_number(std::u32string_view text, std::size_t at) {
  while (at < text.size()) {
    const bool between =
        (text[at] == '.' || text[at] == ',') && at + 1 < text.size() && is_digit(text[at + 1]);
    if (!is_digit(text[at]) && !between) break;
    ++at;
  }
  return at;
}

}  // namespace

Tokens cut_into_words(std::string_view utf8) {
  const Characters text = characters_of(utf8);
  Tokens tokens;
  for (std::size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    if (is_digit(text[at])) {
      const std::size_t end = end_of_number(text, at);
      if (end == text.size() || !is_of_word(text[end])) {
        tokens.push_back(utf8_of(std::u32string_view(text).substr(at, end - at)));
        at = end;
        continue;
      }
    }
    if (is_of_word(text[at])) {
      at = cut_word(text, at, tokens);
    } else {
      tokens.push_back(utf8_of({&text[at], 1}));
      ++at;
    }
  }
  return tokens;
}

Tokens tokenize(std::string_view text) { return cut_into_words(apply_rules(text)); }

std::vector<Tokens> tokenize_all(const std::vector<std::string>& texts, int threads) {
  std::vector<Tokens> all(texts.size());
  in_parallel(std::ssize(texts), threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    all[at] = tokenize(texts[at]);
  });
  return all;
}

}  // namespace peal::data
