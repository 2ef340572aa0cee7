// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding as GPT-2 has it (Sennrich et al., "Neural machine translation of rare words
// with subword units", 2016; over bytes: Radford et al., "Language models are unsupervised
// multitask learners", 2019, section 2.2): a text is cut into words with the blank before them, and
// each is merged from its bytes, pair by pair, the pair that was learnt first going first. Every
// text has an encoding, and decode(encode(text)) is the text, whatever its bytes.
//
//   auto bpe = data::BytePairs::load("vocab.bpe");        // GPT-2's merges
//   bpe.encode("Hello world");                            // 15496, 995
//
// Numbers are GPT-2's: the 256 bytes, in the order of its alphabet, then the merges, then
// "<|endoftext|>". Thread safety: immutable.
#pragma once

#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::data {

class BytePairs {
 public:
  // Two tokens, as bytes, that become one.
  using Merge = std::pair<std::string, std::string>;

  // In the order in which they were learnt. Error: a pair of what is no token before it; a token
  // that comes twice.
  explicit BytePairs(const std::vector<Merge>& merges);
  // The most frequent pairs of these texts, of equals the one whose tokens are smaller as bytes;
  // fewer than `merges` where no pair comes twice.
  static BytePairs train(const std::vector<std::string>& texts, std::int64_t merges);

  std::int64_t size() const { return std::ssize(tokens_) + 1; }
  std::int64_t end_of_text() const { return std::ssize(tokens_); }
  // The bytes of a token. Error for a number outside of 0..size()-2.
  const std::string& token(std::int64_t number) const;

  TokenIds encode(std::string_view text) const;
  // The same of many, by so many threads.
  std::vector<TokenIds> encode_all(const std::vector<std::string>& texts, int threads = 1) const;
  // "<|endoftext|>" for end_of_text(). Error for a number that is none of its own.
  std::string decode(const TokenIds& numbers) const;

  // The file of GPT-2, "vocab.bpe" or "merges.txt": a line a merge, whose bytes are written in the
  // alphabet. Errors, with the line: not two words, a character that is not in the alphabet, those
  // of the constructor.
  static BytePairs load(const std::filesystem::path& path);
  static BytePairs parse(std::string_view text, std::string_view name);
  void save(const std::filesystem::path& path) const;

 private:
  void merge_word(std::string_view bytes, TokenIds& numbers) const;
  std::int64_t add(std::int64_t left, std::int64_t right);

  std::vector<std::string> tokens_;                          // by number
  std::vector<std::pair<std::int64_t, std::int64_t>> made_;  // of which numbers; from the 256th on
  std::unordered_map<std::uint64_t, std::int64_t> merged_;   // by both numbers
};

// The words of a text, with the blank before them, as GPT-2 cuts it: contractions, letters,
// numbers, other marks, blanks. Joined, they are the text.
std::vector<std::string_view> cut_for_byte_pairs(std::string_view text);

}  // namespace peal::data
