// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/norm.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// Beside an x in low precision they may also be f32.
void check_affine(std::string_view op, const Tensor& x, const Tensor& affine, const Shape& shape) {
  if (!affine.defined()) return;
  if (affine.dtype() != computed_in(x.dtype()) || affine.device() != x.device()) {
    check_alike(op, x, affine);
  }
  PEAL_CHECK(affine.shape() == shape, op, ": expected weight, bias and statistics of shape ", shape,
             " for input ", x.shape(), ", got ", affine.shape());
}

struct Affine {
  Shape shape;
  DType weight, bias;
  Affine(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias)
      : shape(shape),
        weight(weight.defined() ? weight.dtype() : x.dtype()),
        bias(bias.defined() ? bias.dtype() : x.dtype()) {}
};

// The gradients that are wanted of x, weight and bias.
Tensors wanted(const Tensor& x, const Affine& affine, Needs needs) {
  Tensors grads(3);
  if (needs[0]) grads[0] = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (needs[1]) grads[1] = Tensor::empty(affine.shape, affine.weight, x.device());
  if (needs[2]) grads[2] = Tensor::empty(affine.shape, affine.bias, x.device());
  return grads;
}

// The gradients of y = normal(x) * weight + bias as ops, to be differentiated in turn: x [rows,
// width] or [N, C, plane], normal over `dims`, the others of `shape`, which stretches over x.
// `fixed`: mean and variance that are no functions of x, or none.
Tensors gradients_of_ops(const Tensor& g, const Tensor& x, const Tensor& weight,
                         const std::vector<int>& dims, const Tensors& fixed, double eps) {
  const Tensor mu = fixed.empty() ? mean(x, dims, true) : fixed[0];
  const Tensor centered = x - mu;
  const Tensor variance = fixed.empty() ? mean(centered * centered, dims, true) : fixed[1];
  const Tensor inverse = pow(variance + eps, -0.5), normal = centered * inverse;
  const Tensor slope = weight.defined() ? g * weight : g;
  const Tensor dx =
      fixed.empty() ? slope - mean(slope, dims, true) - normal * mean(slope * normal, dims, true)
                    : slope;
  return {dx * inverse, g * normal, g};
}

// The same where types differ: computed in the widest, and `wanted` of each type and shape.
Tensors wanted_of_ops(const Tensor& g, const Tensor& x, const Tensor& weight, const Shape& flat,
                      const Shape& along, const std::vector<int>& dims, const Tensors& fixed,
                      double eps, const Affine& affine, Needs needs) {
  const DType within = computed_in(x.dtype());
  const auto wide = [&](const Tensor& tensor, const Shape& shape) {
    return tensor.defined() ? reshaped(cast(tensor, within), shape) : tensor;
  };
  Tensors fixed_along;
  for (const Tensor& each : fixed) fixed_along.push_back(wide(each, along));
  const Tensors all =
      gradients_of_ops(wide(g, flat), wide(x, flat), wide(weight, along), dims, fixed_along, eps);
  Tensors grads(3);
  if (needs[0]) grads[0] = cast(reshaped(all[0], x.shape()), x.dtype());
  if (needs[1]) grads[1] = cast(reshaped(sum_to(all[1], along), affine.shape), affine.weight);
  if (needs[2]) grads[2] = cast(reshaped(sum_to(all[2], along), affine.shape), affine.bias);
  return grads;
}

// running = (1 - momentum) running + share batch, in batch's type.
void move_towards(const Tensor& running, const Tensor& batch, double momentum, double share) {
  const Tensor wide = cast(running, batch.dtype());
  mul_(wide, 1 - momentum);
  add_(wide, batch, share);
  if (!wide.same_as(running)) running.copy_(cast(wide, running.dtype()));
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  if (widens(x, weight, bias)) {
    return layer_norm(widened(x), shape, widened(weight), widened(bias), eps);
  }
  TraceSpan span("layer_norm");
  check_floating("layer_norm", x);
  bool fits = shape.dim() >= 1 && shape.dim() <= x.dim() && shape.numel() > 0;
  for (int i = 1; fits && i <= shape.dim(); ++i) fits = x.size(-i) == shape[-i];
  PEAL_CHECK(fits, "layer_norm: shape ", x.shape(), " does not end in ", shape);
  check_affine("layer_norm", x, weight, shape);
  check_affine("layer_norm", x, bias, shape);
  const std::int64_t width = shape.numel(), rows = x.numel() / width;
  const auto flat = [](const Tensor& affine) {
    return affine.defined() ? affine.detach({affine.numel()}) : affine;
  };
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor mean = Tensor::empty({rows}, computed_in(x.dtype()), x.device());
  const Tensor inverse = Tensor::empty({rows}, mean.dtype(), x.device());
  kernels(x.device())
      .layer_norm("layer_norm", x, y.detach({rows, width}), mean, inverse, x.detach({rows, width}),
                  flat(weight), flat(bias), eps);
  return record("layer_norm", y, {x, weight, bias},
                [x = save(x), weight = save(weight), affine = Affine(x, shape, weight, bias), mean,
                 inverse, rows, width, eps](const Tensor& g, Needs needs) {
                  if (backward_is_recorded()) {
                    return wanted_of_ops(g, x(), weight(), {rows, width}, {1, width}, {1}, {}, eps,
                                         affine, needs);
                  }
                  Tensors grads = wanted(x(), affine, needs);
                  const Shape matrix{rows, width};
                  kernels(g.device())
                      .layer_norm_backward(
                          "layer_norm", g, needs[0] ? grads[0].detach(matrix) : Tensor(), grads[1],
                          grads[2], g.detach(matrix), x().detach(matrix), mean, inverse, weight());
                  return grads;
                });
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  TraceSpan span("batch_norm");
  check_floating("batch_norm", x);
  PEAL_CHECK(x.dim() >= 2, "batch_norm: expected [N, C, ...], got shape ", x.shape());
  PEAL_CHECK(running_mean.defined() == running_var.defined(),
             "batch_norm: running mean and variance come together");
  const std::int64_t channels = x.size(1);
  for (const Tensor* affine : {&running_mean, &running_var, &weight, &bias}) {
    check_affine("batch_norm", x, *affine, {channels});
  }
  const Shape planes{x.size(0), channels,
                     x.numel() / std::max<std::int64_t>(x.size(0) * channels, 1)};
  const bool own = options.training || !running_mean.defined();
  const std::int64_t count = planes[0] * planes[2];
  Tensor mean = running_mean, variance = running_var;
  if (own) {
    PEAL_CHECK(count > 1 || (count == 1 && !options.training),
               "batch_norm: expected more than one value a channel to train with, got shape ",
               x.shape());
    mean = Tensor::empty({channels}, computed_in(x.dtype()), x.device());
    variance = Tensor::empty({channels}, mean.dtype(), x.device());
    kernels(x.device()).channel_statistics("batch_norm", x, mean, variance, x.detach(planes));
  } else {  // backward must see what forward saw, and another step may move them
    mean = running_mean.clone();
    variance = running_var.clone();
  }
  if (options.training && running_mean.defined()) {
    const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
    move_towards(running_mean, mean, options.momentum, options.momentum);
    move_towards(running_var, variance, options.momentum, options.momentum * unbiased);
  }
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device())
      .batch_norm("batch_norm", x, y.detach(planes), x.detach(planes), mean, variance, weight, bias,
                  options.eps);
  return record(
      "batch_norm", y, {x, weight, bias},
      [x = save(x), weight = save(weight), affine = Affine(x, {channels}, weight, bias), planes,
       mean, variance, own, eps = options.eps](const Tensor& g, Needs needs) {
        if (backward_is_recorded()) {
          return wanted_of_ops(g, x(), weight(), planes, {1, planes[1], 1}, {0, 2},
                               own ? Tensors{} : Tensors{mean, variance}, eps, affine, needs);
        }
        Tensors grads = wanted(x(), affine, needs);
        kernels(g.device())
            .batch_norm_backward("batch_norm", g, needs[0] ? grads[0].detach(planes) : Tensor(),
                                 grads[1], grads[2], g.detach(planes), x().detach(planes), mean,
                                 variance, weight(), eps, own);
        return grads;
      });
}

}  // namespace peal
