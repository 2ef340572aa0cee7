// SPDX-License-Identifier: Apache-2.0
// Bags of rows of a table: the sum, mean or largest of those that a list of indices names.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>

namespace peal {

enum class BagMode : std::uint8_t { sum, mean, max };

struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  std::optional<std::int64_t> padding_idx{};  // counts for nothing and gets no gradient
  Tensor per_sample_weights{};                // of index's shape, for a sum alone
  bool include_last_offset = false;           // offsets end with index's size: one bag less
};

// weight [count, width], index i64 [B, N] -> [B, width], bags of N; or index [M] with offsets i64
// [B], where each bag begins. A bag of nothing is zeros.
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                     const EmbeddingBagOptions& options = {});

}  // namespace peal
