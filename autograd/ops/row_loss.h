// SPDX-License-Identifier: Apache-2.0
// Losses over classes of rows, by kernels that know no weights: what loss.h's come down to.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

#include <cstdint>
#include <string_view>

namespace peal {

// Error unless x is [N, C] and target i64 [N] beside it.
void check_class_rows(std::string_view op, const Tensor& x, const Tensor& target);
// x where the row of its target counts, else 0: what is in a row that is ignored, or comes back to
// it, may be NaN or infinite, and would not go away by a factor of 0.
Tensor counting(const Tensor& x, const Tensor& target, std::int64_t ignore_index);
// log_probabilities [N, C], target [N]; errors and records in op's name.
Tensor row_nll_loss(std::string_view op, const Tensor& log_probabilities, const Tensor& target,
                    Reduction reduction, std::int64_t ignore_index);
// logits [N, C], target [N].
Tensor row_cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                         std::int64_t ignore_index, double label_smoothing);

}  // namespace peal
