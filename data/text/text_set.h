// SPDX-License-Identifier: Apache-2.0
// Texts with a class each, padded as classifiers want them: on the left, where the last state
// counts; or by parts, where a text is read in parts of seq_len tokens, as nn::AwdTextClassifier
// wants it: whole parts of padding stand before a text and what is left over behind it, so that all
// texts begin where a part does, the longest first. (fastai's pad_chunk, but that every text has a
// token in the last part: there fastai may pad all of it, and its encoder takes another text's
// tokens for it.) Lengths serve plans of batches of like length (by_length() of batches.h). Thread
// safety: immutable.
#pragma once

#include <peal/data/samples.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace peal::data {

// The longest sample stands first, of equals the first; each is filled up with whole parts of
// seq_len tokens before it, and less than one behind it. x [B, T] i64, "lengths" [B], y, "order"
// [B] i64: row r is the sample that was asked for as number order[r], that of places()[order[r]] of
// a loader. Errors: as of pad_collate(), seq_len < 1.
Collate pad_parts(std::int64_t seq_len, std::int64_t value = padding_token);

class TextSet : public SampleSet {
 public:
  // Without classes nobody knows them, and there is no y. Error for other numbers of texts and
  // classes. x [B, longest] i64, "lengths" [B], y [B].
  TextSet(std::vector<TokenIds> texts, std::vector<std::int64_t> classes,
          Padding::Side side = Padding::left)
      : TextSet(std::move(texts), std::move(classes),
                pad_collate({.value = padding_token, .side = side})) {}
  TextSet(std::vector<TokenIds> texts, std::vector<std::int64_t> classes, Collate together);

  std::int64_t size() const override { return std::ssize(texts_); }
  Sample sample(std::int64_t index, Draw&) const override {
    const TokenIds& text = texts_[static_cast<std::size_t>(index)];
    const Tensor tokens = Tensor::from(text, {std::ssize(text)}, Device{});
    if (classes_.empty()) return {tokens, {}};
    return {tokens, Tensor::scalar(classes_[static_cast<std::size_t>(index)], Device{})};
  }
  std::vector<std::int64_t> lengths() const {
    std::vector<std::int64_t> all;
    for (const TokenIds& text : texts_) all.push_back(std::ssize(text));
    return all;
  }

 private:
  std::vector<TokenIds> texts_;
  std::vector<std::int64_t> classes_;
};

}  // namespace peal::data
