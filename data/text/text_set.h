// SPDX-License-Identifier: Apache-2.0
// Texts with a class each, padded on the left as a classifier wants them whose last state counts
// (fastai: pad_input_chunk's padding). Lengths serve plans of batches of like length (by_length()
// of batches.h). Thread safety: immutable.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/data/samples.h>
#include <peal/data/text/rules.h>
#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace peal::data {

class TextSet : public SampleSet {
 public:
  // Error for other numbers of texts and classes. x [B, longest] i64, "lengths" [B], y [B].
  TextSet(std::vector<TokenIds> texts, std::vector<std::int64_t> classes,
          Padding::Side side = Padding::left)
      : SampleSet(pad_collate({.value = padding_token, .side = side})),
        texts_(std::move(texts)),
        classes_(std::move(classes)) {
    PEAL_CHECK(texts_.size() == classes_.size(), "[data] texts: expected a class for each of ",
               texts_.size(), " texts, got ", classes_.size());
  }

  std::int64_t size() const override { return std::ssize(texts_); }
  Sample sample(std::int64_t index, Draw&) const override {
    const TokenIds& text = texts_[static_cast<std::size_t>(index)];
    return {Tensor::from(text, {std::ssize(text)}, Device{}),
            Tensor::scalar(classes_[static_cast<std::size_t>(index)], Device{})};
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
