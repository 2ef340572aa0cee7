// SPDX-License-Identifier: Apache-2.0
// SentencePiece (Kudo and Richardson, "SentencePiece: a simple and language independent subword
// tokenizer and detokenizer for neural text processing", 2018), by its own library: pieces of text
// that need no words, since a blank is a letter like others, written "▁". Models are the files
// *.model that spm_train, T5, XLM-R and LLaMA come with.
//
//   const auto pieces = data::SentencePieceProcessor::load("spiece.model");
//   pieces.encode("Hello world");                         // as Python's sentencepiece
//
// Where peal was built without the library (libsentencepiece-dev), load(), parse() and train() are
// an error that says so. Thread safety: immutable. Copies share one model.
#pragma once

#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

// The names and defaults of spm_train. What normalises nothing, keeps all blanks and falls back to
// bytes ("identity", false, true) gives every text of UTF-8 back as it was.
struct SentencePieceOptions {
  std::string model_type = "unigram";                // or "bpe", "char", "word"
  double character_coverage = 0.9995;                // of the characters, the most frequent
  std::string normalization_rule_name = "nmt_nfkc";  // or "identity", ...
  bool remove_extra_whitespaces = true;              // at the ends, and where several follow
  bool byte_fallback = false;                        // characters of no piece as bytes
};

class SentencePieceProcessor {
 public:
  // The model in a file, or in these bytes, which errors call `name`. Errors: not readable, cut
  // off, no model, what the library refuses.
  static SentencePieceProcessor load(const std::filesystem::path& path);
  static SentencePieceProcessor parse(std::string_view model, std::string_view name);
  // So many pieces of these texts, a sentence a line; the same of the same texts. Errors of the
  // library: more pieces than the texts have, fewer than they have characters.
  static SentencePieceProcessor train(const std::vector<std::string>& texts, std::int64_t pieces,
                                      const SentencePieceOptions& options = {});

  std::int64_t size() const;
  // -1 where the model has none.
  std::int64_t unk_id() const;
  std::int64_t bos_id() const;
  std::int64_t eos_id() const;
  std::int64_t pad_id() const;
  // Error for a number outside of 0..size()-1.
  std::string piece(std::int64_t id) const;
  // unk_id() for what is none of its pieces.
  std::int64_t id(std::string_view piece) const;

  TokenIds encode(std::string_view text) const;
  Tokens encode_as_pieces(std::string_view text) const;
  // The ids of many, by so many threads.
  std::vector<TokenIds> encode_all(const std::vector<std::string>& texts, int threads = 1) const;
  // Error for a number that is none of its own.
  std::string decode(const TokenIds& ids) const;

  // The model as it was read. Error: not writable.
  void save(const std::filesystem::path& path) const;

 private:
  struct Model;
  explicit SentencePieceProcessor(std::shared_ptr<const Model> model);
  std::shared_ptr<const Model> model_;
};

}  // namespace peal::data
