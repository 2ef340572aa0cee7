// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pair_loss.h>
#include <peal/autograd/ops/reduced.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// The loss's slope along x, and along the target, as ops.
Tensor slope(PairLoss which, const Tensor& x, const Tensor& target, double beta) {
  switch (which) {
    case PairLoss::squared_error:
      return (x - target) * 2.0;
    case PairLoss::smooth_l1:
      if (beta > 0) return clamp((x - target) / beta, -1, 1);
      return cast(gt(x, target), x.dtype()) - cast(lt(x, target), x.dtype());
    case PairLoss::bce_with_logits:
      return sigmoid(x) - target;
  }
  return {};
}
Tensor slope_of_target(PairLoss which, const Tensor& x, const Tensor& target, double beta) {
  return -(which == PairLoss::bce_with_logits ? x : slope(which, x, target, beta));
}

// Times `factor`.
Tensor loss(std::string_view op, PairLoss which, const Tensor& x, const Tensor& target,
            Reduction reduction, double beta = 0, double factor = 1) {
  if (widens(x, target)) {
    return loss(op, which, widened(x), widened(target), reduction, beta, factor);
  }
  TraceSpan span(op);
  check_pair(op, x, target);
  PEAL_CHECK(reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  PEAL_CHECK(reduction != Reduction::mean || x.numel() > 0, op, ": the mean of no elements");
  const DType within = computed_in(x.dtype());
  Tensor value = Tensor::empty(x.shape(), within, x.device());
  kernels(x.device()).pair_loss(op, x, which, value, x, target, beta);
  const double scale =
      reduction == Reduction::mean ? factor / static_cast<double>(x.numel()) : factor;
  if (reduction != Reduction::none) {
    const Tensor each = value;
    value = Tensor::empty({}, within, x.device());
    kernels(x.device()).sum(op, x, value, each, (1u << x.dim()) - 1, scale);
  } else if (factor != 1) {
    mul_(value, factor);
  }
  return record(
      op, cast(value, x.dtype()), {x, target},
      [op, which, x = save(x), target = save(target), beta, scale](const Tensor& g, Needs needs) {
        Tensors grads(2);
        if (backward_is_recorded()) {
          const Tensor each = mul(g, scale);
          if (needs[0]) grads[0] = slope(which, x(), target(), beta) * each;
          if (needs[1]) grads[1] = slope_of_target(which, x(), target(), beta) * each;
          return grads;
        }
        for (std::size_t i = 0; i < 2; ++i) {
          if (needs[i]) grads[i] = Tensor::empty(x().shape(), g.dtype(), g.device());
        }
        kernels(g.device())
            .pair_loss_backward(op, g, which, grads[0], grads[1], g, x(), target(), beta, scale);
        return grads;
      });
}

// By the weight of each element; the mean is over the weights where `by_weight`, else over the
// elements.
Tensor weighted_loss(std::string_view op, PairLoss which, const Tensor& x, const Tensor& target,
                     const Tensor& weight, Reduction reduction, bool by_weight, double beta = 0,
                     double factor = 1) {
  if (widens(x, target)) {
    return weighted_loss(op, which, widened(x), widened(target), widened(weight), reduction,
                         by_weight, beta, factor);
  }
  const OpName name(op);
  check_alike(op, x, weight);
  PEAL_CHECK(x.shape() == weight.shape(), op, ": expected a weight of shape ", x.shape(), ", got ",
             weight.shape());
  PEAL_CHECK(reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  const DType within = computed_in(x.dtype());
  const Tensor wide = cast(weight, within);
  const Tensor each =
      loss(op, which, cast(x, within), cast(target, within), Reduction::none, beta, factor) * wide;
  if (reduction != Reduction::mean || !by_weight) return reduced(op, each, reduction, x.dtype());
  return cast(sum(each) / sum(wide), x.dtype());
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss("mse_loss", PairLoss::squared_error, x, target, reduction);
}
Tensor mse_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction) {
  return weighted_loss("mse_loss", PairLoss::squared_error, x, target, weight, reduction, true);
}

// Smooth within nothing.
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss("l1_loss", PairLoss::smooth_l1, x, target, reduction);
}
Tensor l1_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction) {
  return weighted_loss("l1_loss", PairLoss::smooth_l1, x, target, weight, reduction, true);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, double beta) {
  PEAL_CHECK(beta >= 0, "smooth_l1_loss: expected a beta of at least 0, got ", beta);
  return loss("smooth_l1_loss", PairLoss::smooth_l1, x, target, reduction, beta);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction, double delta) {
  PEAL_CHECK(delta > 0, "huber_loss: expected a delta above 0, got ", delta);
  return loss("huber_loss", PairLoss::smooth_l1, x, target, reduction, delta, delta);
}
Tensor huber_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                  double delta) {
  PEAL_CHECK(delta > 0, "huber_loss: expected a delta above 0, got ", delta);
  return weighted_loss("huber_loss", PairLoss::smooth_l1, x, target, weight, reduction, false,
                       delta, delta);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction) {
  return loss("binary_cross_entropy_with_logits", PairLoss::bce_with_logits, x, target, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BCEWithLogitsOptions& options) {
  constexpr std::string_view op = "binary_cross_entropy_with_logits";
  if (widens(x, target)) {
    return binary_cross_entropy_with_logits(
        widened(x), widened(target),
        BCEWithLogitsOptions{widened(options.weight), widened(options.pos_weight),
                             options.reduction});
  }
  const OpName name(op);
  check_pair(op, x, target);
  PEAL_CHECK(options.reduction != Reduction::batchmean, op, ": batchmean is kl_div's alone");
  const DType within = computed_in(x.dtype());
  const auto wide = [&](const Tensor& weight) {
    check_alike(op, x, weight);
    PEAL_CHECK(broadcast(op, x.shape(), weight.shape()) == x.shape(), op,
               ": expected a weight that stretches to ", x.shape(), ", got shape ", weight.shape());
    return cast(weight, within);
  };
  const Tensor logits = cast(x, within), wanted = cast(target, within);
  const auto each_of = [&](const Tensor& of) {
    return loss(op, PairLoss::bce_with_logits, logits, of, Reduction::none);
  };
  Tensor each;
  if (options.pos_weight.defined()) {  // each_of(1) is -log sigmoid(x)
    const Tensor share = (wide(options.pos_weight) - 1.0) * wanted + 1.0;
    each = logits * (1.0 - wanted) + share * each_of(ones(x.shape(), within, x.device()));
  } else {
    each = each_of(wanted);
  }
  if (options.weight.defined()) each = each * wide(options.weight);
  return reduced(op, each, options.reduction, x.dtype());
}

}  // namespace peal
