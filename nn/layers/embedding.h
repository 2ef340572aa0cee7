// SPDX-License-Identifier: Apache-2.0
// Embedding: a row of a table for each index. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/nn/module.h>

namespace peal::nn {

struct EmbeddingSettings {
  std::optional<std::int64_t> padding_idx;  // this row starts as zeros and is never trained
};

class Embedding : public Module {
 public:
  // weight [count, width], normal with mean 0 and deviation 1.
  Embedding(std::int64_t count, std::int64_t width, const EmbeddingSettings& settings = {})
      : padding_idx_(settings.padding_idx) {
    PEAL_CHECK(count > 0 && width > 0, "Embedding: sizes must be positive, got ", count, " and ",
               width);
    if (padding_idx_ && *padding_idx_ < 0) *padding_idx_ += count;
    PEAL_CHECK(!padding_idx_ || (*padding_idx_ >= 0 && *padding_idx_ < count),
               "Embedding: padding_idx ", *settings.padding_idx, " is not one of ", count, " rows");
    const Tensor value = randn({count, width});
    if (padding_idx_) value.rows(*padding_idx_, *padding_idx_ + 1).zero_();
    weight = add_parameter("weight", value);
  }

  // index [...] of i64 -> [..., width].
  Tensor forward(const Tensor& index) override { return embedding(index, weight, padding_idx_); }

  Tensor weight;

 private:
  std::optional<std::int64_t> padding_idx_;
};

}  // namespace peal::nn
