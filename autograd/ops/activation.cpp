// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/pointwise.h>
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
  // A leaf's elements are the caller's, even where this is the last handle (from_blob).
  return input.is_leaf() ? relu(input) : relu_into(like_or_over(input), input);
}

Tensor tanh(const Tensor& x) { return apply_pointwise("tanh", Pointwise::tanh, x); }
Tensor sigmoid(const Tensor& x) { return apply_pointwise("sigmoid", Pointwise::sigmoid, x); }
Tensor gelu(const Tensor& x, GeluApproximation approximation) {
  return apply_pointwise(
      "gelu", approximation == GeluApproximation::tanh ? Pointwise::gelu_tanh : Pointwise::gelu, x);
}

}  // namespace peal
