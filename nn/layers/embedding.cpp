// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/random.h>
#include <peal/nn/layers/embedding.h>

#include <algorithm>

namespace peal::nn {
namespace {

// `padding` counted from the front; Error where it is no row.
void count_from_front(const char* who, std::optional<std::int64_t>& padding, std::int64_t count) {
  if (!padding) return;
  const std::int64_t given = *padding;
  if (given < 0) *padding += count;
  PEAL_CHECK(*padding >= 0 && *padding < count, who, ": padding_idx ", given, " is not one of ",
             count, " rows");
}

Tensor new_table(const char* who, std::int64_t count, std::int64_t width,
                 const std::optional<std::int64_t>& padding) {
  PEAL_CHECK(count > 0 && width > 0, who, ": sizes must be positive, got ", count, " and ", width);
  const Tensor value = randn({count, width});
  if (padding) value.rows(*padding, *padding + 1).zero_();
  return value;
}

// The rows at `index` that are longer, scaled down in place. The host looks at the lengths.
void shorten(const Tensor& weight, const Tensor& index, double max_norm, double norm_type) {
  const NoGrad guard;
  std::vector<std::int64_t> rows = index.to_vector<std::int64_t>();
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (rows.empty()) return;
  const Tensor table = weight.detach();
  const Tensor looked_up =
      index_select(table, 0, Tensor::from(rows, {std::ssize(rows)}, weight.device()));
  const std::vector<double> norms =
      cast(pairwise_distance(looked_up, full({}, 0, table.dtype(), table.device()), norm_type, 0),
           DType::f64)
          .to_vector<double>();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!(norms[i] > max_norm)) continue;
    const Tensor row = table.rows(rows[i], rows[i] + 1);
    mul_(row, max_norm / (norms[i] + 1e-7));
  }
}

}  // namespace

Embedding::Embedding(std::int64_t count, std::int64_t width, const EmbeddingSettings& settings)
    : settings_(settings) {
  count_from_front("Embedding", settings_.padding_idx, count);
  weight = add_parameter("weight", new_table("Embedding", count, width, settings_.padding_idx));
}

Embedding::Embedding(const Tensor& table, const EmbeddingSettings& settings) : settings_(settings) {
  PEAL_CHECK(table.dim() == 2, "Embedding: expected a table [count, width], got shape ",
             table.shape());
  count_from_front("Embedding", settings_.padding_idx, table.size(0));
  weight = add_parameter("weight", table);
}

Embedding Embedding::from_pretrained(const Tensor& table, bool freeze,
                                     const EmbeddingSettings& settings) {
  Embedding made(table, settings);
  if (freeze) made.requires_grad_(false);
  return made;
}

Tensor Embedding::forward(const Tensor& index) {
  if (settings_.max_norm) shorten(weight, index, *settings_.max_norm, settings_.norm_type);
  return embedding(index, weight, settings_.padding_idx);
}

EmbeddingBag::EmbeddingBag(std::int64_t count, std::int64_t width,
                           const EmbeddingBagSettings& settings)
    : settings_(settings) {
  count_from_front("EmbeddingBag", settings_.padding_idx, count);
  weight = add_parameter("weight", new_table("EmbeddingBag", count, width, settings_.padding_idx));
}

Tensor EmbeddingBag::look_up(const Tensor& index, const Tensor& offsets,
                             const Tensor& per_sample_weights) {
  if (settings_.max_norm) shorten(weight, index, *settings_.max_norm, settings_.norm_type);
  return embedding_bag(index, weight, offsets,
                       {.mode = settings_.mode,
                        .padding_idx = settings_.padding_idx,
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = settings_.include_last_offset});
}

}  // namespace peal::nn
