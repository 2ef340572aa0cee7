// SPDX-License-Identifier: Apache-2.0
// Losses over classes of rows, by kernels that know no weights: what loss.h's come down to.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

#include <cstdint>
#include <string_view>

namespace peal {

// log_probabilities [N, C], target [N]; errors and records in op's name.
Tensor row_nll_loss(std::string_view op, const Tensor& log_probabilities, const Tensor& target,
                    Reduction reduction, std::int64_t ignore_index);
// logits [N, C], target [N].
Tensor row_cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                         std::int64_t ignore_index, double label_smoothing);

}  // namespace peal
