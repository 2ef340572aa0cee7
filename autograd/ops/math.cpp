// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/tape.h>

namespace peal {

Tensor apply_pointwise(std::string_view op, Pointwise f, const Tensor& x, double s, double t) {
  TraceSpan span(op);
  check_floating(op, x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).pointwise(op, x, f, y, x, s, t);
  const bool keeps_result = f == Pointwise::exp || f == Pointwise::sqrt || f == Pointwise::tanh ||
                            f == Pointwise::sigmoid;
  return record(op, y, {x}, [op, f, s, t, kept = save(keeps_result ? y : x)](const Tensor& g) {
    Tensor dx = like_or_over(g);
    kernels(g.device()).pointwise_backward(op, g, f, dx, g, kept(), s, t);
    return dx;
  });
}

Tensor exp(const Tensor& x) {
  return widens(x) ? exp(widened(x)) : apply_pointwise("exp", Pointwise::exp, x);
}
Tensor log(const Tensor& x) {
  return widens(x) ? log(widened(x)) : apply_pointwise("log", Pointwise::log, x);
}
Tensor sqrt(const Tensor& x) { return apply_pointwise("sqrt", Pointwise::sqrt, x); }
Tensor abs(const Tensor& x) { return apply_pointwise("abs", Pointwise::abs, x); }
Tensor pow(const Tensor& x, double exponent) {
  if (widens(x)) return pow(widened(x), exponent);
  return apply_pointwise("pow", Pointwise::pow, x, exponent);
}
Tensor clamp(const Tensor& x, double low, double high) {
  return apply_pointwise("clamp", Pointwise::clamp, x, low, high);
}

}  // namespace peal
