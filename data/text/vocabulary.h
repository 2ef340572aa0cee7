// SPDX-License-Identifier: Apache-2.0
// Vocabulary: the tokens of the training texts and their numbers, as fastai's make_vocab: the
// special tokens of rules.h first, then by how often they come (of equals the one that came first),
// and "xxfake" to fill up to a multiple of eight, which matrices like. Thread safety: immutable.
#pragma once

#include <peal/data/text/tokenizer.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace peal::data {

using TokenIds = std::vector<std::int64_t>;

struct VocabularyOptions {
  std::int64_t max_size = 60000;  // before it is filled up
  std::int64_t min_count = 3;     // rarer tokens are unknown
};

class Vocabulary {
 public:
  // Of all tokens of these texts. Error: max_size below the number of special tokens.
  explicit Vocabulary(const std::vector<Tokens>& texts, const VocabularyOptions& options = {});
  // Of these words, which stand at their numbers. Error: a special token in another place; a word
  // twice, but for "xxfake".
  static Vocabulary of_words(std::vector<std::string> words);

  std::int64_t size() const { return std::ssize(words_); }
  const std::vector<std::string>& words() const { return words_; }
  // The number of a token; unknown_token for one that is none of its own.
  std::int64_t operator[](std::string_view token) const;
  TokenIds numbers(const Tokens& tokens) const;
  // The same of many, by so many threads.
  std::vector<TokenIds> numbers_of_all(const std::vector<Tokens>& texts, int threads = 1) const;
  // Error for a number that is none of its own.
  Tokens tokens(const TokenIds& numbers) const;

  // A line a word. Errors: not writable; those of of_words() and read_file(), a file without words.
  void save(const std::filesystem::path& path) const;
  static Vocabulary load(const std::filesystem::path& path);

 private:
  Vocabulary() = default;
  void number_words();

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> numbers_;
};

}  // namespace peal::data
