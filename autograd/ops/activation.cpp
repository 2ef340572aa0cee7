// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {

namespace {

Tensor relu_into(Tensor y, const Tensor& x) {
  TraceSpan span("relu");
  kernels(x.device()).unary("relu", x, Unary::relu, y, x, 0.0);
  return record("relu", y, {x}, [y = save(y)](const Tensor& g) {
    if (backward_is_recorded()) {
      return where(le(y(), 0), full({}, 0, g.dtype(), g.device()), g);
    }
    Tensor dx = like_or_over(g);
    kernels(g.device()).binary("relu", g, Binary::relu_backward, dx, g, y());
    return dx;
  });
}

}  // namespace

Tensor relu(const Tensor& x) {
  const OpName op("relu");
  return relu_into(Tensor::empty(x.shape(), x.dtype(), x.device()), x);
}

Tensor relu(Tensor&& x) {
  const OpName op("relu");
  const Tensor input = std::move(x);
  // A blob's elements are the caller's, even where this is the last handle.
  return input.storage()->owned() ? relu_into(like_or_over(input), input) : relu(input);
}

Tensor tanh(const Tensor& x) {
  const OpName op("tanh");
  return apply_pointwise("tanh", Pointwise::tanh, is_floating(x.dtype()) ? x : cast(x, DType::f32));
}
Tensor sigmoid(const Tensor& x) {
  const OpName op("sigmoid");
  return apply_pointwise("sigmoid", Pointwise::sigmoid,
                         is_floating(x.dtype()) ? x : cast(x, DType::f32));
}
Tensor gelu(const Tensor& x, GeluApproximation approximation) {
  return apply_pointwise(
      "gelu", approximation == GeluApproximation::tanh ? Pointwise::gelu_tanh : Pointwise::gelu, x);
}

Tensor silu(const Tensor& x) { return apply_pointwise("silu", Pointwise::silu, x); }
Tensor mish(const Tensor& x) { return apply_pointwise("mish", Pointwise::mish, x); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (widens(x)) return softplus(widened(x), beta, threshold);
  return apply_pointwise("softplus", Pointwise::softplus, x, beta, threshold);
}
Tensor logsigmoid(const Tensor& x) {
  return apply_pointwise("logsigmoid", Pointwise::logsigmoid, x);
}
Tensor elu(const Tensor& x, double alpha) {
  return apply_pointwise("elu", Pointwise::elu, x, alpha);
}
Tensor selu(const Tensor& x) { return apply_pointwise("selu", Pointwise::selu, x); }
Tensor celu(const Tensor& x, double alpha) {
  PEAL_CHECK(alpha != 0, "celu: alpha must not be 0");
  return apply_pointwise("celu", Pointwise::celu, x, alpha);
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return apply_pointwise("leaky_relu", Pointwise::leaky_relu, x, negative_slope);
}
Tensor hardtanh(const Tensor& x, double low, double high) {
  const OpName op("hardtanh");
  PEAL_CHECK(low <= high, "hardtanh: expected low <= high, got ", low, " and ", high);
  if (!is_floating(x.dtype())) return clamp(x, low, high);
  return apply_pointwise("hardtanh", Pointwise::clamp, x, low, high);
}
Tensor relu6(const Tensor& x) {
  const OpName op("relu6");
  return hardtanh(x, 0, 6);
}
Tensor hardsigmoid(const Tensor& x) {
  return apply_pointwise("hardsigmoid", Pointwise::hardsigmoid, x);
}
Tensor hardswish(const Tensor& x) { return apply_pointwise("hardswish", Pointwise::hardswish, x); }
Tensor softsign(const Tensor& x) { return apply_pointwise("softsign", Pointwise::softsign, x); }
Tensor tanhshrink(const Tensor& x) {
  return apply_pointwise("tanhshrink", Pointwise::tanhshrink, x);
}
Tensor hardshrink(const Tensor& x, double lambda) {
  return apply_pointwise("hardshrink", Pointwise::hardshrink, x, lambda);
}
Tensor softshrink(const Tensor& x, double lambda) {
  PEAL_CHECK(lambda >= 0, "softshrink: expected lambda >= 0, got ", lambda);
  return apply_pointwise("softshrink", Pointwise::softshrink, x, lambda);
}
Tensor threshold(const Tensor& x, double threshold, double value) {
  return apply_pointwise("threshold", Pointwise::threshold, x, threshold, value);
}

Tensor prelu(const Tensor& x, const Tensor& weight) {
  const OpName op("prelu");
  check_alike("prelu", x, weight);
  check_floating("prelu", x);
  const std::int64_t channels = x.dim() < 2 ? 1 : x.size(1);
  PEAL_CHECK(weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels),
             "prelu: expected a weight [1] or [", channels, "] for shape ", x.shape(), ", got ",
             weight.shape());
  Shape along;  // [C, 1, ...], or one element
  for (int i = 1; i < x.dim(); ++i) along.push_back(i == 1 ? weight.numel() : 1);
  return where(gt(x, 0), x, x * reshaped(weight, along));
}

Tensor glu(const Tensor& x, int dim) {
  const OpName op("glu");
  const int at = checked_dim("glu", x, dim);
  PEAL_CHECK(x.size(at) % 2 == 0, "glu: expected an even size along dimension ", dim,
             ", which is halved, got shape ", x.shape());
  const std::int64_t half = x.size(at) / 2;
  return narrow(x, at, 0, half) * sigmoid(narrow(x, at, half, half));
}

Tensor softmin(const Tensor& x, int dim) {
  const OpName op("softmin");
  return softmax(neg(x), dim);
}

Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  const OpName op("rrelu");
  PEAL_CHECK(lower <= upper, "rrelu: expected lower <= upper, got ", lower, " and ", upper);
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  check_floating("rrelu", x);
  return where(gt(x, 0), x, x * uniform(x.shape(), lower, upper, x.dtype(), x.device()));
}

}  // namespace peal
