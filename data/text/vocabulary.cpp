// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/in_parallel.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/vocabulary.h>

#include <algorithm>
#include <utility>

namespace peal::data {
namespace {

constexpr std::string_view filler = "xxfake";

bool is_special(std::string_view token) {
  return std::find(special_tokens.begin(), special_tokens.end(), token) != special_tokens.end();
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<Tokens>& texts, const VocabularyOptions& options) {
  PEAL_CHECK(options.max_size >= std::ssize(special_tokens),
             "[data] vocabulary: expected a max_size of at least ", special_tokens.size(),
             ", as many as there are special tokens, got ", options.max_size);
  std::unordered_map<std::string_view, std::size_t> places;
  std::vector<std::pair<std::string_view, std::int64_t>> counts;  // in the order they came
  for (const Tokens& text : texts) {
    for (const std::string& token : text) {
      const auto [found, is_new] = places.emplace(token, counts.size());
      if (is_new) counts.emplace_back(token, 0);
      ++counts[found->second].second;
    }
  }
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  words_.assign(special_tokens.begin(), special_tokens.end());
  for (const auto& [token, count] : counts) {
    if (count < options.min_count || size() == options.max_size) break;
    if (!is_special(token) && token != filler) words_.emplace_back(token);
  }
  while (size() % 8 != 0) words_.emplace_back(filler);
  number_words();
}

Vocabulary Vocabulary::of_words(std::vector<std::string> words) {
  Vocabulary vocabulary;
  vocabulary.words_ = std::move(words);
  for (std::size_t i = 0; i < special_tokens.size(); ++i) {
    PEAL_CHECK(i < vocabulary.words_.size() && vocabulary.words_[i] == special_tokens[i],
               "[data] vocabulary: expected the word '", special_tokens[i], "' at place ", i,
               ", got ",
               i < vocabulary.words_.size() ? "'" + vocabulary.words_[i] + "'" : "nothing");
  }
  vocabulary.number_words();
  return vocabulary;
}

void Vocabulary::number_words() {
  for (std::int64_t i = 0; i < size(); ++i) {
    const std::string& word = words_[static_cast<std::size_t>(i)];
    const auto [found, is_new] = numbers_.emplace(word, i);
    PEAL_CHECK(is_new || word == filler, "[data] vocabulary: the word '", word,
               "' stands at places ", found->second, " and ", i);
  }
  numbers_.erase(std::string(filler));  // no text has it
}

std::int64_t Vocabulary::operator[](std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? std::int64_t{unknown_token} : found->second;
}

TokenIds Vocabulary::numbers(const Tokens& tokens) const {
  TokenIds all;
  all.reserve(tokens.size());
  for (const std::string& token : tokens) all.push_back((*this)[token]);
  return all;
}

std::vector<TokenIds> Vocabulary::numbers_of_all(const std::vector<Tokens>& texts,
                                                 int threads) const {
  std::vector<TokenIds> all(texts.size());
  in_parallel(std::ssize(texts), threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    all[at] = numbers(texts[at]);
  });
  return all;
}

Tokens Vocabulary::tokens(const TokenIds& numbers) const {
  Tokens all;
  for (const std::int64_t number : numbers) {
    PEAL_CHECK(number >= 0 && number < size(), "[data] vocabulary: expected a number from 0 to ",
               size() - 1, ", got ", number);
    all.push_back(words_[static_cast<std::size_t>(number)]);
  }
  return all;
}

void Vocabulary::save(const std::filesystem::path& path) const {
  std::string text;
  for (const std::string& word : words_) {
    PEAL_CHECK(word.find('\n') == word.npos, "[data] ", path.string(),
               ": a word of the vocabulary has a line end, and the file has a word a line");
    text += word + "\n";
  }
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

Vocabulary Vocabulary::load(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> content = read_file(path);
  std::vector<std::string> words;
  for (auto at = content.begin(); at != content.end();) {
    const auto end = std::find(at, content.end(), std::uint8_t{'\n'});
    words.emplace_back(at, end);
    at = end == content.end() ? end : end + 1;
  }
  try {
    return of_words(std::move(words));
  } catch (const Error& error) {
    fail(concat("[data] ", path.string(), ": no vocabulary: ", error.what()));
  }
}

}  // namespace peal::data
