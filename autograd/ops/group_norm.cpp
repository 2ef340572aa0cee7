// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/group_norm.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/norm.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

namespace peal {
namespace {

// Elements of one channel of one sample.
std::int64_t plane_of(std::string_view op, const Tensor& x) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() >= 2 && x.size(1) > 0, op, ": expected [N, C, ...], got shape ", x.shape());
  std::int64_t plane = 1;
  for (int i = 2; i < x.dim(); ++i) plane *= x.size(i);
  return plane;
}

// [C] beside x, in its type.
Tensor by_channel(std::string_view op, const Tensor& affine, const Tensor& x) {
  PEAL_CHECK(affine.shape() == Shape{x.size(1)} && affine.device() == x.device(), op,
             ": expected weight and bias [", x.size(1), "] on ", x.device(), " for input ",
             x.shape(), ", got shape ", affine.shape(), " on ", affine.device());
  Shape shape{x.size(1)};
  for (int i = 2; i < x.dim(); ++i) shape.push_back(1);
  return reshaped(cast(affine, x.dtype()), shape);
}

double machine_epsilon(DType dtype) { return dtype == DType::f64 ? 0x1p-52 : 0x1p-23; }

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  if (widens(x, weight, bias)) {
    return group_norm(widened(x), groups, widened(weight), widened(bias), eps);
  }
  constexpr std::string_view op = "group_norm";
  const OpName name(op);
  const std::int64_t plane = plane_of(op, x), channels = x.size(1);
  PEAL_CHECK(groups > 0 && channels % groups == 0, op, ": ", groups, " groups do not divide ",
             channels, " channels");
  PEAL_CHECK(plane > 0, op, ": no elements a channel in shape ", x.shape());
  const std::int64_t width = channels / groups * plane;
  Tensor y = reshaped(layer_norm(reshaped(x, {x.size(0) * groups, width}), {width}, {}, {}, eps),
                      x.shape());
  if (weight.defined()) y = y * by_channel(op, weight, x);
  if (bias.defined()) y = y + by_channel(op, bias, x);
  return y;
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, const InstanceNormOptions& options) {
  constexpr std::string_view op = "instance_norm";
  const OpName name(op);
  const std::int64_t plane = plane_of(op, x), samples = x.size(0), channels = x.size(1);
  const bool running = running_mean.defined();
  PEAL_CHECK(running == running_var.defined(), op, ": running mean and variance come together");
  if (!options.use_input_stats) {
    PEAL_CHECK(running, op, ": there are no running statistics to take");
    return batch_norm(x, running_mean, running_var, weight, bias, {.eps = options.eps});
  }
  PEAL_CHECK(plane > 1, op, ": expected more than one element a channel, got shape ", x.shape());
  // Each channel of each sample as a channel of one sample.
  const auto repeated = [&](const Tensor& each) {
    if (!each.defined()) return each;
    PEAL_CHECK(each.shape() == Shape{channels}, op, ": expected weight, bias and statistics [",
               channels, "] for input ", x.shape(), ", got shape ", each.shape());
    return reshaped(expand_to(each, {samples, channels}), {samples * channels});
  };
  const Tensor mean_of_each = repeated(running_mean), var_of_each = repeated(running_var);
  const Tensor y = batch_norm(reshaped(x, {1, samples * channels, plane}), mean_of_each,
                              var_of_each, repeated(weight), repeated(bias),
                              {.training = true, .momentum = options.momentum, .eps = options.eps});
  if (running && samples > 0 && !recomputing()) {
    const NoGrad guard;
    running_mean.copy_(mean(reshaped(mean_of_each, {samples, channels}), {0}));
    running_var.copy_(mean(reshaped(var_of_each, {samples, channels}), {0}));
  }
  return reshaped(y, x.shape());
}

Tensor rms_norm(const Tensor& x, const Shape& shape, const Tensor& weight,
                std::optional<double> eps) {
  if (widens(x, weight)) return rms_norm(widened(x), shape, widened(weight), eps);
  constexpr std::string_view op = "rms_norm";
  const OpName name(op);
  check_floating(op, x);
  bool fits = shape.dim() >= 1 && shape.dim() <= x.dim() && shape.numel() > 0;
  std::vector<int> dims;
  for (int i = 1; fits && i <= shape.dim(); ++i) {
    fits = x.size(-i) == shape[-i];
    dims.push_back(-i);
  }
  PEAL_CHECK(fits, op, ": shape ", x.shape(), " does not end in ", shape);
  const DType within = computed_in(x.dtype());
  const Tensor wide = cast(x, within);
  const Tensor inverse =
      pow(mean(wide * wide, dims, true) + eps.value_or(machine_epsilon(within)), -0.5);
  Tensor y = wide * inverse;
  if (weight.defined()) {
    PEAL_CHECK(weight.shape() == shape && weight.device() == x.device(), op, ": expected a weight ",
               shape, " on ", x.device(), ", got shape ", weight.shape(), " on ", weight.device());
    y = y * cast(weight, within);
  }
  return cast(y, x.dtype());
}

Tensor local_response_norm(const Tensor& x, std::int64_t size,
                           const LocalResponseNormOptions& options) {
  constexpr std::string_view op = "local_response_norm";
  const OpName name(op);
  const std::int64_t plane = plane_of(op, x);
  PEAL_CHECK(x.dim() >= 3, op, ": expected [N, C, ...] of at least three dimensions, got shape ",
             x.shape());
  PEAL_CHECK(size >= 1, op, ": expected a size of at least 1, got ", size);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const Tensor squares = reshaped(wide * wide, {x.size(0), 1, x.size(1), plane});
  const Tensor padded = pad(squares, {0, 0, size / 2, (size - 1) / 2});
  const Tensor means = reshaped(avg_pool2d(padded, {size, 1}, {.stride = 1}), x.shape());
  return cast(wide / pow(means * options.alpha + options.k, options.beta), x.dtype());
}

}  // namespace peal
