// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/margin_loss.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pair_loss.h>
#include <peal/autograd/ops/reduced.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/shape.h>

namespace peal {
namespace {

// Of each element, reduced.
Tensor of_margin(std::string_view op, const Tensor& each, Reduction reduction, DType dtype) {
  PEAL_CHECK(reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  return reduced(op, each, reduction, dtype);
}

Tensor number_like(const Tensor& x, double value) { return full({}, value, x.dtype(), x.device()); }

// Error unless `classes` may be picked from x [N, C].
void check_classes(std::string_view op, const Tensor& x, const Tensor& classes,
                   const Shape& shape) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 2 && x.numel() > 0, op, ": expected [N, classes], got shape ", x.shape());
  PEAL_CHECK(classes.dtype() == DType::i64 && classes.shape() == shape, op,
             ": expected an i64 target ", shape, ", got ", classes.dtype(), " ", classes.shape());
}

}  // namespace

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  if (widens(x, target)) return soft_margin_loss(widened(x), widened(target), reduction);
  constexpr std::string_view op = "soft_margin_loss";
  const OpName name(op);
  check_pair(op, x, target);
  const DType within = computed_in(x.dtype());
  const Tensor scores = cast(x, within) * cast(target, within);
  const Tensor each = binary_cross_entropy_with_logits(scores, ones(x.shape(), within, x.device()),
                                                       Reduction::none);
  return of_margin(op, each, reduction, x.dtype());
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin,
                            Reduction reduction) {
  if (widens(x, target)) {
    return hinge_embedding_loss(widened(x), widened(target), margin, reduction);
  }
  constexpr std::string_view op = "hinge_embedding_loss";
  const OpName name(op);
  check_pair(op, x, target);
  const DType within = computed_in(x.dtype());
  const Tensor wide = cast(x, within), zero = number_like(wide, 0);
  const Tensor each = where(ne(target, number_like(target, 1)), relu(margin - wide), zero) +
                      where(ne(target, number_like(target, -1)), wide, zero);
  return of_margin(op, each, reduction, x.dtype());
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           Reduction reduction) {
  if (widens(a, b, target)) {
    return margin_ranking_loss(widened(a), widened(b), widened(target), margin, reduction);
  }
  constexpr std::string_view op = "margin_ranking_loss";
  const OpName name(op);
  check_alike(op, a, b);
  check_alike(op, a, target);
  check_floating(op, a);
  PEAL_CHECK(a.dim() == b.dim() && a.dim() == target.dim(), op,
             ": expected operands of as many dimensions, got shapes ", a.shape(), ", ", b.shape(),
             " and target ", target.shape());
  const DType within = computed_in(a.dtype());
  const Tensor ahead = cast(target, within) * (cast(a, within) - cast(b, within));
  return of_margin(op, relu(margin - ahead), reduction, a.dtype());
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                             Reduction reduction) {
  if (widens(a, b, target)) {
    return cosine_embedding_loss(widened(a), widened(b), widened(target), margin, reduction);
  }
  constexpr std::string_view op = "cosine_embedding_loss";
  const OpName name(op);
  check_pair(op, a, b);
  check_alike(op, a, target);
  PEAL_CHECK(
      (a.dim() == 1 && target.dim() == 0) || (a.dim() == 2 && target.shape() == Shape{a.size(0)}),
      op, ": expected rows [N, D] and a target [N], or [D] and a scalar, got ", a.shape(), " and ",
      target.shape());
  const DType within = computed_in(a.dtype());
  const Tensor x = cast(a, within), y = cast(b, within);
  constexpr double eps = 1e-12;  // PyTorch's
  const auto square = [&](const Tensor& of) { return sum(of * of, {-1}) + eps; };
  const Tensor cosine = sum(x * y, {-1}) / sqrt(square(x) * square(y));
  const Tensor sign = cast(target, within), zero = number_like(sign, 0);
  const Tensor each = where(eq(sign, number_like(sign, 1)), 1.0 - cosine, zero) +
                      where(eq(sign, number_like(sign, -1)), relu(cosine - margin), zero);
  return of_margin(op, each, reduction, a.dtype());
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative, const DistanceFunction& distance,
                                         const TripletMarginOptions& options) {
  constexpr std::string_view op = "triplet_margin_loss";
  const OpName name(op);
  PEAL_CHECK(options.margin > 0, op, ": expected a margin above 0, got ", options.margin);
  PEAL_CHECK(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), op,
             ": expected tensors of as many dimensions, got shapes ", anchor.shape(), ", ",
             positive.shape(), " and ", negative.shape());
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return of_margin(op, relu(near - far + options.margin), options.reduction, near.dtype());
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  if (widens(anchor, positive, negative)) {
    return triplet_margin_loss(widened(anchor), widened(positive), widened(negative), options);
  }
  const OpName name("triplet_margin_loss");
  const DType dtype = anchor.dtype(), within = computed_in(dtype);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, options.p, options.eps);
  };
  const auto wide = [&](const Tensor& x) {
    check_alike("triplet_margin_loss", anchor, x);
    return cast(x, within);
  };
  return cast(triplet_margin_with_distance_loss(wide(anchor), wide(positive), wide(negative),
                                                distance, options),
              dtype);
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginOptions& options) {
  if (widens(x)) {
    return multi_margin_loss(
        widened(x), target,
        {options.p, options.margin, widened(options.weight), options.reduction});
  }
  constexpr std::string_view op = "multi_margin_loss";
  const OpName name(op);
  check_classes(op, x, target, {x.size(0)});
  PEAL_CHECK(options.p == 1 || options.p == 2, op, ": expected p of 1 or 2, got ", options.p);
  const auto classes = static_cast<double>(x.size(1));
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const Tensor own = gather(wide, 1, unsqueeze(target, 1));
  Tensor short_of = relu(wide - own + options.margin);
  if (options.p == 2) short_of = short_of * short_of;
  // The class itself is short by the margin: not counted.
  const Tensor itself = eq(arange(x.size(1), DType::i64, x.device()), unsqueeze(target, 1));
  Tensor each = sum(where(itself, number_like(wide, 0), short_of), {1}) / classes;
  if (options.weight.defined()) {
    check_alike(op, x, options.weight);
    PEAL_CHECK(options.weight.shape() == Shape{x.size(1)}, op, ": expected a weight [", x.size(1),
               "], got shape ", options.weight.shape());
    each = each * index_select(cast(options.weight.detach(), wide.dtype()), 0, target);
  }
  return of_margin(op, each, options.reduction, x.dtype());
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  if (widens(x)) return multilabel_margin_loss(widened(x), target, reduction);
  constexpr std::string_view op = "multilabel_margin_loss";
  const OpName name(op);
  check_classes(op, x, target, x.shape());
  const std::int64_t classes = x.size(1);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const auto integer = [&](double value) { return full({}, value, DType::i64, x.device()); };
  // [N, k]: whether the k-th is a class; [N, C]: how often a class is named.
  const Tensor ended = cumsum(cast(lt(target, integer(0)), DType::i64), 1);
  const Tensor named = eq(ended, integer(0));
  const Tensor at = where(named, target, integer(-1));
  const Tensor times =
      sum(cast(eq(unsqueeze(at, 2), arange(classes, DType::i64, x.device())), DType::i64), {1});
  const Tensor others = eq(times, integer(0));  // [N, C]
  // [N, k, j]: by how much the k-th lies below 1 more than class j.
  const Tensor own = gather(wide, 1, where(named, target, integer(0)));
  const Tensor short_of = relu(unsqueeze(wide, 1) - unsqueeze(own, 2) + 1.0);
  const Tensor counts = logical_and(unsqueeze(named, 2), unsqueeze(others, 1));
  const Tensor each = sum(where(counts, short_of, number_like(wide, 0)), {1, 2});
  return of_margin(op, each / static_cast<double>(classes), reduction, x.dtype());
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultiLabelSoftMarginOptions& options) {
  if (widens(x, target)) {
    return multilabel_soft_margin_loss(widened(x), widened(target),
                                       {widened(options.weight), options.reduction});
  }
  constexpr std::string_view op = "multilabel_soft_margin_loss";
  const OpName name(op);
  check_pair(op, x, target);
  PEAL_CHECK(x.dim() >= 1 && x.size(-1) > 0, op, ": expected [.., classes], got shape ", x.shape());
  const DType within = computed_in(x.dtype());
  Tensor weight = options.weight;
  if (weight.defined()) weight = cast(weight, within);
  const Tensor each = binary_cross_entropy_with_logits(
      cast(x, within), cast(target, within), BCEWithLogitsOptions{weight, {}, Reduction::none});
  return of_margin(op, mean(each, {-1}), options.reduction, x.dtype());
}

}  // namespace peal
