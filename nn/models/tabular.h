// SPDX-License-Identifier: Apache-2.0
// TabularModel: a network for rows of a table, as fastai's, with its names of parameters
// (fastai/tabular/model.py): an embedding for each category, beside them the numbers, then linear
// layers with ReLU, batch norm and dropout. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/layers.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace peal::nn {

// Linear, activation, BatchNorm1d and Dropout, in this order (`lin_first`), or batch norm, dropout,
// linear and activation; without what is not wanted. A linear layer with batch norm has no bias,
// and batch norm begins with a bias of 1e-3.
struct LinBnDropSettings {
  bool bn = true;
  double p = 0;      // 0: no Dropout
  bool act = false;  // a ReLU
  bool lin_first = false;
};
class LinBnDrop : public Sequential {
 public:
  LinBnDrop(std::int64_t in, std::int64_t out, const LinBnDropSettings& settings = {});
};

// A number between low and high: sigmoid(x) (high - low) + low.
class SigmoidRange : public Module {
 public:
  SigmoidRange(double low, double high) : low_(low), high_(high) {}
  Tensor forward(const Tensor& x) override;

 private:
  double low_, high_;
};

struct TabularSettings {
  // Of each category: how many codes, and how wide (data::embedding_sizes()).
  std::vector<std::pair<std::int64_t, std::int64_t>> embeddings = {};
  std::int64_t numbers = 0;
  std::int64_t outputs = 2;
  std::vector<std::int64_t> layers = {200, 100};
  std::vector<double> ps = {};  // dropout behind each of `layers`; none: 0, one: of all
  double embed_p = 0;           // dropout of the embeddings
  std::optional<std::pair<double, double>> y_range = {};
  bool use_bn = true, bn_final = false, bn_cont = true, lin_first = true;
};

// Tables for columns of codes, named "0", "1", ...: codes [N, tables] i64 -> their rows side by
// side, [N, all widths].
class Embeddings : public Module {
 public:
  // Normal with deviation 0.01, cut at two of it.
  explicit Embeddings(const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes);
  Tensor forward(const Tensor& codes) override;
};

class TabularModel : public Module {
 public:
  // Errors: neither categories nor numbers, another number of ps than layers.
  explicit TabularModel(const TabularSettings& settings);

  // codes [N, categories] i64, numbers [N, numbers] -> [N, outputs]. What there is none of is not
  // looked at, and may be undefined.
  using Module::operator();
  Tensor operator()(const Tensor& codes, const Tensor& numbers) {
    return call(&TabularModel::predict, codes, numbers);
  }
  Tensor predict(const Tensor& codes, const Tensor& numbers);

 private:
  std::int64_t categories_, numbers_;
  Embeddings embeds_;
  Dropout emb_drop_;
  std::optional<BatchNorm1d> bn_cont_;
  Sequential layers_;
};

}  // namespace peal::nn
