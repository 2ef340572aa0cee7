// SPDX-License-Identifier: Apache-2.0
// Token files: the numbers of a text's tokens, two or four bytes each, that are mapped into memory
// rather than read, so that a text may be larger than memory and begins at once; and windows of
// them as a data set for a language model.
//
// The file: "PEALTOK1", the bytes of a token (4 bytes: 2 or 4), the size of the vocabulary (4), the
// number of tokens (8), then the tokens; all little-endian. Thread safety: immutable.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace peal::data {

// Replaces the file whole or not at all. Error: a number that is not below `vocabulary`, one of
// above 2^32.
void save_tokens(const std::filesystem::path& path, std::span<const std::int64_t> tokens,
                 std::int64_t vocabulary);

class TokenFile {
 public:
  // Errors: not there, not such a file, another length than it says.
  explicit TokenFile(const std::filesystem::path& path);
  // As of a file with these tokens. Errors: those of save_tokens().
  static TokenFile in_memory(std::span<const std::int64_t> tokens, std::int64_t vocabulary);

  std::int64_t size() const { return count_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  // Tokens begin, begin + 1, ... as many as `to` has. Error outside of the file, and for a number
  // that is not below vocabulary(): the file is damaged.
  void read(std::int64_t begin, std::span<std::int64_t> to) const;

 private:
  TokenFile() = default;

  std::string name_;
  std::shared_ptr<const void> mapped_;
  const unsigned char* tokens_ = nullptr;
  std::int64_t bytes_ = 0, count_ = 0, vocabulary_ = 0;
};

// Sample i is tokens i stride .. i stride + length: x [B, length], and y one token further on.
class TokenWindows : public Dataset {
 public:
  // stride 0: `length`, so that no token is told twice. What fills no window at the file's end is
  // left out; to_end, it is told by one window more, which ends there, and whose y is -100
  // (ignore_index of losses and metrics) for what the window before tells. Error: length < 1,
  // stride < 0, a file of fewer than length + 1 tokens.
  TokenWindows(std::shared_ptr<const TokenFile> file, std::int64_t length, std::int64_t stride = 0,
               bool to_end = false);

  std::int64_t size() const override;
  Batch get(std::span<const std::int64_t> indices) const override;

 private:
  std::shared_ptr<const TokenFile> file_;
  std::int64_t length_, stride_;
  std::int64_t whole_, told_;  // windows at multiples of the stride; the last token that they tell
  bool to_end_;
};

// A vocabulary of single characters, those of `text`, by their code points (nanoGPT: char level).
class CharacterVocabulary {
 public:
  explicit CharacterVocabulary(std::string_view text);

  std::int64_t size() const { return std::ssize(characters_); }
  // Error, with the line, for a character that the vocabulary has not.
  TokenIds encode(std::string_view text) const;
  std::string decode(const TokenIds& numbers) const;

  // A text of all of them. Errors: not writable, not readable, an empty file.
  void save(const std::filesystem::path& path) const;
  static CharacterVocabulary load(const std::filesystem::path& path);

 private:
  std::u32string characters_;  // sorted
};

}  // namespace peal::data
