// SPDX-License-Identifier: Apache-2.0
// Embedding: a row of a table for each index; EmbeddingBag: the sum, mean or largest of several.
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/embedding_bag.h>
#include <peal/autograd/ops/index.h>
#include <peal/nn/module.h>

#include <optional>

namespace peal::nn {

struct EmbeddingSettings {
  std::optional<std::int64_t> padding_idx{};  // this row starts as zeros and is never trained
  // Rows of a larger norm are scaled down to it as they are looked up, in the table itself.
  std::optional<double> max_norm{};
  double norm_type = 2;
};

class Embedding : public Module {
 public:
  // weight [count, width], normal with mean 0 and deviation 1.
  Embedding(std::int64_t count, std::int64_t width, const EmbeddingSettings& settings = {});
  // Over a table that there is, [count, width], which shares its storage; it is not trained where
  // freeze.
  static Embedding from_pretrained(const Tensor& table, bool freeze = true,
                                   const EmbeddingSettings& settings = {});

  // index [...] of i64 -> [..., width].
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;
  const EmbeddingSettings& settings() const { return settings_; }  // padding_idx from the front

  Tensor weight;

 private:
  Embedding(const Tensor& table, const EmbeddingSettings& settings);
  EmbeddingSettings settings_;
};

struct EmbeddingBagSettings {
  BagMode mode = BagMode::mean;
  std::optional<std::int64_t> padding_idx{};
  std::optional<double> max_norm{};  // as above
  double norm_type = 2;
  bool include_last_offset = false;
};

class EmbeddingBag : public Module {
 public:
  // weight [count, width], normal with mean 0 and deviation 1.
  EmbeddingBag(std::int64_t count, std::int64_t width, const EmbeddingBagSettings& settings = {});

  // index [B, N] of i64 -> [B, width].
  using Module::operator();
  Tensor forward(const Tensor& index) override { return look_up(index, {}, {}); }
  // index [M], offsets [B] where each bag begins, weights of the elements for a sum
  // (autograd/ops/embedding_bag.h).
  Tensor operator()(const Tensor& index, const Tensor& offsets,
                    const Tensor& per_sample_weights = {}) {
    return call(&EmbeddingBag::look_up, index, offsets, per_sample_weights);
  }
  Tensor look_up(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights);
  std::string extra_repr() const override;

  Tensor weight;

 private:
  EmbeddingBagSettings settings_;
};

}  // namespace peal::nn
