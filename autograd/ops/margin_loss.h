// SPDX-License-Identifier: Apache-2.0
// Losses by margins, with PyTorch's semantics: of scores against signs or classes, of pairs and of
// triplets. Signs are 1 and -1, of the scores' type. A scalar, or with Reduction::none a loss for
// each element, row or pair; batchmean is refused.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

#include <cstdint>
#include <functional>

namespace peal {

// log(1 + exp(-target x)) of each element.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target,
                        Reduction reduction = Reduction::mean);
// x where target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin = 1,
                            Reduction reduction = Reduction::mean);
// max(0, margin - target (a - b)): a is to be the larger where target is 1. They broadcast.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           double margin = 0, Reduction reduction = Reduction::mean);
// Of the cosine between the rows of a and b [N, D] (or [D]), target [N]: 1 - cos where target is 1,
// max(0, cos - margin) where it is -1.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             double margin = 0, Reduction reduction = Reduction::mean);

struct TripletMarginOptions {
  double margin = 1;  // above 0
  double p = 2;       // of the distance, and below its eps (distance.h)
  double eps = 1e-6;
  bool swap = false;  // the distance from the positive to the negative counts, where it is smaller
  Reduction reduction = Reduction::mean;
};
// max(0, d(anchor, positive) - d(anchor, negative) + margin) of rows [..., D] (Balntas et al.,
// "Learning local feature descriptors with triplets", 2016).
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});
// The same with a distance of one's own: p and eps play no part.
using DistanceFunction = std::function<Tensor(const Tensor& a, const Tensor& b)>;
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative, const DistanceFunction& distance,
                                         const TripletMarginOptions& options = {});

// In the order of PyTorch's arguments.
struct MultiMarginOptions {
  int p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight{};  // [C], by the target's class
  Reduction reduction = Reduction::mean;
};
// sum over the other classes j of max(0, margin - x[target] + x[j])^p, over C: x [N, C], target i64
// [N].
Tensor multi_margin_loss(const Tensor& x, const Tensor& target,
                         const MultiMarginOptions& options = {});
// sum of max(0, 1 - x[i] + x[j]) over the target's classes i and the others j, over C: x [N, C],
// target i64 [N, C], the classes of a row up to its first negative number.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                              Reduction reduction = Reduction::mean);

struct MultiLabelSoftMarginOptions {
  Tensor weight{};  // stretches to x's shape
  Reduction reduction = Reduction::mean;
};
// The mean over the last dimension of binary_cross_entropy_with_logits (pair_loss.h).
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultiLabelSoftMarginOptions& options = {});

}  // namespace peal
