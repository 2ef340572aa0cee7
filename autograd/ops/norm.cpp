// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/graph.h>
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

// x as [N, C, plane].
Shape checked_planes(std::string_view op, const Tensor& x, const Tensor& running_mean,
                     const Tensor& running_var, const Tensor& weight, const Tensor& bias) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() >= 2, op, ": expected [N, C, ...], got shape ", x.shape());
  PEAL_CHECK(running_mean.defined() == running_var.defined(), op,
             ": running mean and variance come together");
  const std::int64_t channels = x.size(1);
  for (const Tensor* affine : {&running_mean, &running_var, &weight, &bias}) {
    check_affine(op, x, *affine, {channels});
  }
  return {x.size(0), channels, x.numel() / std::max<std::int64_t>(x.size(0) * channels, 1)};
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
  const Shape planes = checked_planes("batch_norm", x, running_mean, running_var, weight, bias);
  const std::int64_t channels = planes[1];
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
  if (options.training && running_mean.defined() && !recomputing()) {
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

// With n = (x - mean) inverse, dx = weight inverse (dy - mean(dy) - n mean(dy n)), means over all
// parts: so backward adds up the sums of dy and of dy n, which are the gradients of bias and
// weight.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                  const BatchParts& parts) {
  static constexpr std::string_view op = "sync_batch_norm";
  TraceSpan span(op);
  const Shape planes = checked_planes(op, x, running_mean, running_var, weight, bias);
  const std::int64_t channels = planes[1], count = planes[0] * planes[2];
  const DType within = computed_in(x.dtype());
  const Tensor rows = Tensor::empty({parts.count, 2 * channels + 1}, within, x.device());
  const Tensor mine = rows.detach({2 * channels + 1}, parts.own * (2 * channels + 1));
  if (count > 0) {
    kernels(x.device())
        .channel_statistics(op, x, mine.detach({channels}), mine.detach({channels}, channels),
                            x.detach(planes));
    kernels(x.device()).fill(op, x, mine.detach({1}, 2 * channels), static_cast<double>(count));
  } else {
    kernels(x.device()).fill(op, x, mine, 0);
  }
  parts.gather(rows);
  const Tensor merged = Tensor::empty({3 * channels + 1}, within, x.device());
  kernels(x.device()).merge_statistics(op, x, merged, rows);
  // Who has two values a channel knows without looking; only others wait for a device.
  if (count < 2 && Graph::capturing() == nullptr) {
    const auto all = merged.detach({1}, 3 * channels).item<double>();
    PEAL_CHECK(all > 1, op, ": expected more than one value a channel to train with, got ", all,
               " in ", parts.count, " parts, of which this has shape ", x.shape());
  }
  const Tensor mean = merged.detach({channels}), variance = merged.detach({channels}, channels);
  if (running_mean.defined() && !recomputing()) {
    move_towards(running_mean, mean, options.momentum, options.momentum);
    move_towards(running_var, merged.detach({channels}, 2 * channels), options.momentum,
                 options.momentum);
  }
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (count > 0) {
    kernels(x.device())
        .batch_norm(op, x, y.detach(planes), x.detach(planes), mean, variance, weight, bias,
                    options.eps);
  }
  Tensors inputs{x, weight, bias};
  if (context().grad_enabled && !wants_grad(inputs)) {
    inputs.push_back(Tensor::zeros({}).set_requires_grad());  // so that it is recorded
  }
  return record_one(
      op, y, inputs,
      [x = save(x), weight = save(weight), affine = Affine(x, {channels}, weight, bias), planes,
       merged, mean, variance, count, eps = options.eps, add_up = parts.add_up,
       many = inputs.size()](const Tensors& given, Needs needs) {
        const Tensor& g = given[0];
        const std::int64_t channels = planes[1];
        const Tensor sums = Tensor::empty({2, channels}, merged.dtype(), g.device());
        const Tensor dbias = sums.detach({channels}), dweight = sums.detach({channels}, channels);
        if (count > 0) {
          kernels(g.device())
              .batch_norm_backward(op, g, Tensor(), dweight, dbias, g.detach(planes),
                                   x().detach(planes), mean, variance, Tensor(), eps, false);
        } else {
          kernels(g.device()).fill(op, g, sums, 0);
        }
        Tensors grads(many);
        if (needs[1]) grads[1] = cast(dweight.clone(), affine.weight);
        if (needs[2]) grads[2] = cast(dbias.clone(), affine.bias);
        add_up(sums);
        if (!needs[0]) return grads;
        grads[0] = Tensor::empty(x().shape(), x().dtype(), g.device());
        if (count > 0) {
          kernels(g.device())
              .merged_batch_norm_backward(op, g, grads[0].detach(planes), g.detach(planes),
                                          x().detach(planes), merged, sums, weight(), eps);
        }
        return grads;
      });
}

}  // namespace peal
