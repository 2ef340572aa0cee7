// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pair_loss.h>
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

Tensor loss(std::string_view op, PairLoss which, const Tensor& x, const Tensor& target,
            Reduction reduction, double beta = 0) {
  if (widens(x, target)) return loss(op, which, widened(x), widened(target), reduction, beta);
  TraceSpan span(op);
  check_alike(op, x, target);
  check_floating(op, x);
  PEAL_CHECK(x.shape() == target.shape(), op, ": expected a target of shape ", x.shape(), ", got ",
             target.shape());
  PEAL_CHECK(reduction != Reduction::mean || x.numel() > 0, op, ": the mean of no elements");
  const DType within = computed_in(x.dtype());
  Tensor value = Tensor::empty(x.shape(), within, x.device());
  kernels(x.device()).pair_loss(op, x, which, value, x, target, beta);
  const double scale = reduction == Reduction::mean ? 1.0 / static_cast<double>(x.numel()) : 1.0;
  if (reduction != Reduction::none) {
    const Tensor each = value;
    value = Tensor::empty({}, within, x.device());
    kernels(x.device()).sum(op, x, value, each, (1u << x.dim()) - 1, scale);
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

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return loss("mse_loss", PairLoss::squared_error, x, target, reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, double beta) {
  PEAL_CHECK(beta >= 0, "smooth_l1_loss: expected a beta of at least 0, got ", beta);
  return loss("smooth_l1_loss", PairLoss::smooth_l1, x, target, reduction, beta);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction) {
  return loss("binary_cross_entropy_with_logits", PairLoss::bce_with_logits, x, target, reduction);
}

}  // namespace peal
