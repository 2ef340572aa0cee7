// SPDX-License-Identifier: Apache-2.0
// Losses as objects that remember their reduction. Thread safety: values.
#pragma once

#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/pair_loss.h>

namespace peal::nn {

// logits [N, C], target [N] of i64 -> scalar, or [N] with Reduction::none.
struct CrossEntropyLoss {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return cross_entropy(logits, target, reduction, ignore_index, label_smoothing);
  }
};

// log-probabilities [N, C], target [N] of i64 -> scalar, or [N] with Reduction::none.
struct NLLLoss {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;
  Tensor operator()(const Tensor& log_probabilities, const Tensor& target) const {
    return nll_loss(log_probabilities, target, reduction, ignore_index);
  }
};

// x and target of one shape and floating type -> scalar, or that shape with Reduction::none.
struct MSELoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return mse_loss(x, target, reduction);
  }
};

// Likewise.
struct SmoothL1Loss {
  Reduction reduction = Reduction::mean;
  double beta = 1.0;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return smooth_l1_loss(x, target, reduction, beta);
  }
};

// Likewise; targets are probabilities. Others are not refused, as in PyTorch: some soften labels
// past 0 and 1.
struct BCEWithLogitsLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return binary_cross_entropy_with_logits(x, target, reduction);
  }
};

}  // namespace peal::nn
