// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduced.h>
#include <peal/autograd/ops/row_loss.h>
#include <peal/autograd/ops/shape.h>

#include <vector>

namespace peal {
namespace {

void check_reduction(std::string_view op, Reduction reduction) {
  PEAL_CHECK(reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
}

void check_weight(std::string_view op, const Tensor& x, const Tensor& weight) {
  if (!weight.defined()) return;
  check_alike(op, x, weight);
  const int classes = x.dim() > 1 ? 1 : 0;
  PEAL_CHECK(x.dim() > 0 && weight.shape() == Shape{x.size(classes)}, op,
             ": expected a weight for each class of ", x.shape(), ", got shape ", weight.shape());
}

// Scores as [rows, C], and the shape of all but C.
struct Rows {
  Tensor x;
  Shape places{};
};
Rows rows_of(std::string_view op, const Tensor& x) {
  PEAL_CHECK(x.dim() >= 1, op, ": expected [N, classes], got shape ", x.shape());
  if (x.dim() == 1) return {reshape(x, {1, x.size(0)})};
  std::vector<int> order{0};
  std::int64_t rows = x.size(0);
  Shape places{rows};
  for (int i = 2; i < x.dim(); ++i) {
    order.push_back(i);
    rows *= x.size(i);
    places.push_back(x.size(i));
  }
  if (x.dim() == 2) return {x, places};
  order.push_back(1);
  return {reshape(permute(x, order), {rows, x.size(1)}), places};
}

Tensor of_shape(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : reshape(x, {shape.begin(), shape.end()});
}

// As rows, too; a matrix' is checked by whoever looks at the classes.
Tensor target_rows(std::string_view op, const Tensor& x, const Tensor& target,
                   const Shape& places) {
  const OpName name(op);
  if (x.dim() == 2) return target;
  PEAL_CHECK(target.shape() == places && target.dtype() == DType::i64, op,
             ": expected an i64 target ", places, " for scores ", x.shape(), ", got ",
             target.dtype(), " ", target.shape());
  return flatten(target);
}

// Of rows, each by the weight of its class; the mean is over those weights.
Tensor weighted(std::string_view op, const Tensor& logs, const Tensor& target, const Shape& places,
                const CrossEntropyOptions& o) {
  const auto number = [&](double value, DType dtype) {
    return full({}, value, dtype, logs.device());
  };
  const Tensor weight = cast(o.weight.detach(), logs.dtype()), zero = number(0, logs.dtype());
  const Tensor each = row_nll_loss(op, logs, target, Reduction::none, o.ignore_index);
  const Tensor counts = ne(target, number(static_cast<double>(o.ignore_index), DType::i64));
  const Tensor classes = where(counts, target, number(0, DType::i64));
  const Tensor own = where(counts, index_select(weight, 0, classes), zero);
  Tensor loss = each * own;
  if (o.label_smoothing > 0) {
    const Tensor others = where(counts, -sum(logs * weight, {1}), zero);
    loss = loss * (1 - o.label_smoothing) +
           others * (o.label_smoothing / static_cast<double>(logs.size(1)));
  }
  if (o.reduction == Reduction::none) return of_shape(loss, places);
  return o.reduction == Reduction::sum ? sum(loss) : sum(loss) / sum(own);
}

// Of rows whose targets are probabilities.
Tensor of_probabilities(const Tensor& x, const Tensor& target, const Shape& places,
                        const CrossEntropyOptions& o) {
  PEAL_CHECK(o.ignore_index < 0,
             "cross_entropy: ignore_index is for targets that are classes, got ", o.ignore_index,
             " beside probabilities");
  Tensor wanted = target;
  if (o.label_smoothing > 0) {
    wanted = target * (1 - o.label_smoothing) + o.label_smoothing / static_cast<double>(x.size(1));
  }
  Tensor each = log_softmax(x) * wanted;
  if (o.weight.defined()) each = each * cast(o.weight.detach(), x.dtype());
  each = of_shape(-sum(each, {1}), places);
  return reduced("cross_entropy", each, o.reduction, x.dtype());
}

}  // namespace

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NLLOptions& options) {
  constexpr std::string_view op = "nll_loss";
  if (widens(log_probabilities, options.weight)) {
    return nll_loss(widened(log_probabilities), target,
                    {widened(options.weight), options.ignore_index, options.reduction});
  }
  const OpName name(op);
  check_reduction(op, options.reduction);
  check_weight(op, log_probabilities, options.weight);
  const auto [x, places] = rows_of(op, log_probabilities);
  const Tensor rows = target_rows(op, log_probabilities, target, places);
  if (!options.weight.defined()) {
    const Tensor loss = row_nll_loss(op, x, rows, options.reduction, options.ignore_index);
    return options.reduction == Reduction::none ? of_shape(loss, places) : loss;
  }
  const Tensor loss = weighted(op, cast(x, computed_in(x.dtype())), rows, places,
                               {options.weight, options.ignore_index, options.reduction});
  return cast(loss, x.dtype());
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, Reduction reduction,
                std::int64_t ignore_index) {
  return nll_loss(log_probabilities, target, NLLOptions{{}, ignore_index, reduction});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options) {
  constexpr std::string_view op = "cross_entropy";
  const OpName name(op);
  PEAL_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, op,
             ": expected a label smoothing in [0, 1], got ", options.label_smoothing);
  check_reduction(op, options.reduction);
  const bool soft = target.shape() == logits.shape() && is_floating(target.dtype());
  if (!soft && !options.weight.defined()) {
    const auto [x, places] = rows_of(op, logits);
    const Tensor loss =
        row_cross_entropy(x, target_rows(op, logits, target, places), options.reduction,
                          options.ignore_index, options.label_smoothing);
    return options.reduction == Reduction::none ? of_shape(loss, places) : loss;
  }
  // Of several ops, in f32 at least.
  if (widens(logits, options.weight) || (soft && widens(target))) {
    CrossEntropyOptions wide = options;
    wide.weight = widened(options.weight);
    return cross_entropy(widened(logits), soft ? widened(target) : target, wide);
  }
  check_floating(op, logits);
  check_weight(op, logits, options.weight);
  const DType within = computed_in(logits.dtype());
  const auto [x, places] = rows_of(op, logits);
  PEAL_CHECK(x.size(1) > 0, op, ": expected at least one class, got shape ", logits.shape());
  if (soft) {
    check_alike(op, logits, target);
    const Tensor loss =
        of_probabilities(cast(x, within), cast(rows_of(op, target).x, within), places, options);
    return cast(loss, logits.dtype());
  }
  const Tensor rows = target_rows(op, logits, target, places);
  check_class_rows(op, x, rows);
  const Tensor counted = counting(cast(x, within), rows, options.ignore_index);
  return cast(weighted(op, log_softmax(counted), rows, places, options), logits.dtype());
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                     std::int64_t ignore_index, double label_smoothing) {
  return cross_entropy(logits, target,
                       CrossEntropyOptions{{}, ignore_index, reduction, label_smoothing});
}

}  // namespace peal
