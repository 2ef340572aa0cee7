// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/init.h>
#include <peal/nn/models/tabular.h>

#include <string>

namespace peal::nn {
namespace {

Sequential hidden_layers(const TabularSettings& settings) {
  PEAL_CHECK(!settings.embeddings.empty() || settings.numbers > 0,
             "TabularModel: expected embeddings or numbers, got neither");
  const std::size_t hidden = settings.layers.size();
  PEAL_CHECK(settings.ps.size() <= 1 || settings.ps.size() == hidden,
             "TabularModel: expected a dropout for each of ", hidden,
             " layers, or one for all, got ", settings.ps.size());
  std::int64_t width = settings.numbers;
  for (const auto& [codes, wide] : settings.embeddings) width += wide;
  Sequential layers;
  for (std::size_t i = 0; i <= hidden; ++i) {
    const bool last = i == hidden;
    const std::int64_t out = last ? settings.outputs : settings.layers[i];
    const double p = last || settings.ps.empty() ? 0
                     : settings.ps.size() == 1   ? settings.ps[0]
                                                 : settings.ps[i];
    layers.push_back(LinBnDrop(width, out,
                               {.bn = settings.use_bn && (!last || settings.bn_final),
                                .p = p,
                                .act = !last,
                                .lin_first = settings.lin_first}));
    width = out;
  }
  if (settings.y_range) {
    layers.push_back(SigmoidRange(settings.y_range->first, settings.y_range->second));
  }
  return layers;
}

}  // namespace

LinBnDrop::LinBnDrop(std::int64_t in, std::int64_t out, const LinBnDropSettings& settings) {
  const auto linear = [&] {
    push_back(Linear(in, out, !settings.bn));
    if (settings.act) push_back(ReLU());
  };
  if (settings.lin_first) linear();
  if (settings.bn) {
    const BatchNorm1d norm(settings.lin_first ? out : in);
    init::constant_(norm.bias, 1e-3);
    push_back(norm);
  }
  if (settings.p != 0) push_back(Dropout(settings.p));
  if (!settings.lin_first) linear();
}

Tensor SigmoidRange::forward(const Tensor& x) { return sigmoid(x) * (high_ - low_) + low_; }

Embeddings::Embeddings(const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes) {
  for (const auto& [codes, width] : sizes) {
    const Embedding table = add(std::to_string(child_count()), Embedding(codes, width));
    init::trunc_normal_(table.weight, 0, 0.01, -0.02, 0.02);
  }
}

Tensor Embeddings::forward(const Tensor& codes) {
  const auto tables = static_cast<std::int64_t>(child_count());
  PEAL_CHECK(codes.dim() == 2 && codes.size(1) == tables, "Embeddings: expected codes [N, ", tables,
             "], got shape ", codes.shape());
  const Tensor columns = transpose(codes, 0, 1);
  Tensors rows;
  for (std::int64_t i = 0; i < tables; ++i) {
    const Tensor column = reshape(columns.rows(i, i + 1), {codes.size(0)});
    rows.push_back(child_at(static_cast<std::size_t>(i))(column));
  }
  return rows.size() == 1 ? rows[0] : cat(rows, 1);
}

TabularModel::TabularModel(const TabularSettings& settings)
    : categories_(std::ssize(settings.embeddings)),
      numbers_(settings.numbers),
      embeds_(add("embeds", Embeddings(settings.embeddings))),
      emb_drop_(add("emb_drop", Dropout(settings.embed_p))),
      bn_cont_(settings.bn_cont && settings.numbers > 0
                   ? std::optional(add("bn_cont", BatchNorm1d(settings.numbers)))
                   : std::nullopt),
      layers_(add("layers", hidden_layers(settings))) {}

Tensor TabularModel::predict(const Tensor& codes, const Tensor& numbers) {
  Tensors parts;
  if (categories_ > 0) parts.push_back(emb_drop_(embeds_(codes)));
  if (numbers_ > 0) {
    PEAL_CHECK(numbers.defined() && numbers.dim() == 2 && numbers.size(1) == numbers_,
               "TabularModel: expected numbers [N, ", numbers_, "], got ",
               numbers.defined() ? concat("shape ", numbers.shape()) : std::string("none"));
    parts.push_back(bn_cont_ ? (*bn_cont_)(numbers) : numbers);
  }
  return layers_(parts.size() == 1 ? parts[0] : cat(parts, 1));
}

}  // namespace peal::nn
