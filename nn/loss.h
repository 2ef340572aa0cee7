// SPDX-License-Identifier: Apache-2.0
// Losses as objects that remember their options, which have PyTorch's names and meanings (the ops'
// headers, loss.h, pair_loss.h, probability_loss.h and margin_loss.h, have shapes and formulas).
// Thread safety: values.
#pragma once

#include <peal/autograd/ops/ctc_loss.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/margin_loss.h>
#include <peal/autograd/ops/pair_loss.h>
#include <peal/autograd/ops/probability_loss.h>

#include <cstdint>
#include <utility>

namespace peal::nn {

// logits [N, C, d...], target [N, d...] of i64, or probabilities of logits' shape -> scalar, or [N,
// d...] with Reduction::none.
struct CrossEntropyLoss {
  Tensor weight{};  // [C]
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return cross_entropy(logits, target,
                         CrossEntropyOptions{weight, ignore_index, reduction, label_smoothing});
  }
};

// log-probabilities [N, C, d...], target [N, d...] of i64 -> scalar, or [N, d...] with
// Reduction::none.
struct NLLLoss {
  Tensor weight{};  // [C]
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& log_probabilities, const Tensor& target) const {
    return nll_loss(log_probabilities, target, NLLOptions{weight, ignore_index, reduction});
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
struct L1Loss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return l1_loss(x, target, reduction);
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

// Likewise.
struct HuberLoss {
  Reduction reduction = Reduction::mean;
  double delta = 1.0;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return huber_loss(x, target, reduction, delta);
  }
};

// Likewise; targets are probabilities. Others are not refused, as in PyTorch: some soften labels
// past 0 and 1.
struct BCEWithLogitsLoss {
  Reduction reduction = Reduction::mean;
  Tensor weight{}, pos_weight{};
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    if (!weight.defined() && !pos_weight.defined()) {
      return binary_cross_entropy_with_logits(x, target, reduction);
    }
    return binary_cross_entropy_with_logits(x, target,
                                            BCEWithLogitsOptions{weight, pos_weight, reduction});
  }
};

// An op of x and target with its options: BCELoss({.weight = w})(x, target).
template <class Options, Tensor (*op)(const Tensor&, const Tensor&, const Options&)>
struct LossWithOptions {
  LossWithOptions() = default;
  explicit LossWithOptions(Options chosen) : options(std::move(chosen)) {}
  Tensor operator()(const Tensor& x, const Tensor& target) const { return op(x, target, options); }
  Options options{};
};
using BCELoss = LossWithOptions<BCEOptions, binary_cross_entropy>;
using KLDivLoss = LossWithOptions<KLDivOptions, kl_div>;
using PoissonNLLLoss = LossWithOptions<PoissonNLLOptions, poisson_nll_loss>;
using MultiMarginLoss = LossWithOptions<MultiMarginOptions, multi_margin_loss>;
using MultiLabelSoftMarginLoss =
    LossWithOptions<MultiLabelSoftMarginOptions, multilabel_soft_margin_loss>;

// x, target and variance (gaussian_nll_loss).
struct GaussianNLLLoss {
  GaussianNLLOptions options{};
  Tensor operator()(const Tensor& x, const Tensor& target, const Tensor& variance) const {
    return gaussian_nll_loss(x, target, variance, options);
  }
};

// log-probabilities [T, N, C], targets [N, S] and the lengths of both (ctc_loss).
struct CTCLoss {
  CTCOptions options{};
  Tensor operator()(const Tensor& log_probabilities, const Tensor& targets,
                    const Tensor& input_lengths, const Tensor& target_lengths) const {
    return ctc_loss(log_probabilities, targets, input_lengths, target_lengths, options);
  }
};

struct SoftMarginLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return soft_margin_loss(x, target, reduction);
  }
};

struct MultiLabelMarginLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return multilabel_margin_loss(x, target, reduction);
  }
};

struct HingeEmbeddingLoss {
  double margin = 1;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return hinge_embedding_loss(x, target, margin, reduction);
  }
};

struct MarginRankingLoss {
  double margin = 0;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return margin_ranking_loss(a, b, target, margin, reduction);
  }
};

struct CosineEmbeddingLoss {
  double margin = 0;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return cosine_embedding_loss(a, b, target, margin, reduction);
  }
};

struct TripletMarginLoss {
  TripletMarginOptions options{};
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options);
  }
};

struct TripletMarginWithDistanceLoss {
  DistanceFunction distance;
  TripletMarginOptions options{};
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance, options);
  }
};

}  // namespace peal::nn
