// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {
namespace {

// The slope of gelu: P + x p of the normal distribution. Its own is p (2 - x x), of ops.
Tensor gelu_slope(const Tensor& x) {
  const OpName op("gelu");
  const Tensor slope = ones(x.shape(), x.dtype(), x.device());
  kernels(x.device()).pointwise_backward("gelu", x, Pointwise::gelu, slope, slope, x, 0, 0);
  return record("gelu", slope, {x}, [x = save(x)](const Tensor& g) {
    constexpr double at_zero = 0.39894228040143267794;
    const Tensor square = x() * x();
    return g * exp(square * -0.5) * (2.0 - square) * at_zero;
  });
}

// The gradient as ops, to be differentiated in turn.
Tensor gradient_of_ops(Pointwise f, const Tensor& g, const Tensor& kept, double s, double t) {
  const auto number = [&](double value) { return full({}, value, g.dtype(), g.device()); };
  switch (f) {
    case Pointwise::exp:
      return g * kept;
    case Pointwise::log:
      return g / kept;
    case Pointwise::sqrt:
      return g / (kept * 2.0);
    case Pointwise::abs:
      return where(gt(kept, 0), g, where(lt(kept, 0), -g, number(0)));
    case Pointwise::tanh:
      return g * (1.0 - kept * kept);
    case Pointwise::sigmoid:
      return g * kept * (1.0 - kept);
    case Pointwise::gelu:
      return g * gelu_slope(kept);
    case Pointwise::gelu_tanh: {
      const double c = std::sqrt(2 / 3.14159265358979323846), cubic = 0.044715;
      const Tensor square = kept * kept, h = tanh((kept + kept * square * cubic) * c);
      return g * (0.5 * (1.0 + h) + 0.5 * kept * (1.0 - h * h) * c * (1.0 + 3 * cubic * square));
    }
    case Pointwise::pow:
      return s == 0 ? g * 0.0 : g * pow(kept, s - 1) * s;
    case Pointwise::clamp:
      return where(logical_and(ge(kept, s), le(kept, t)), g, number(0));
  }
  return {};
}

// For integers: x where it is within the bounds, of which an infinite one is none.
Tensor clamped(const Tensor& x, double low, double high) {
  Tensor y = x;
  const auto bound = [&](double value) {
    check_value("clamp", value, x.dtype());
    return full({}, value, x.dtype(), x.device());
  };
  if (!std::isinf(low)) {
    const Tensor least = bound(low);
    y = where(lt(y, least), least, y);
  }
  if (!std::isinf(high)) {
    const Tensor most = bound(high);
    y = where(gt(y, most), most, y);
  }
  return y.same_as(x) ? x.clone() : y;
}

// For integers: x times itself, by squaring.
Tensor multiplied(Tensor x, std::int64_t times) {
  Tensor y = full(x.shape(), 1, x.dtype(), x.device());
  for (; times > 0; times /= 2) {
    if (times % 2 != 0) y = mul(y, x);
    if (times > 1) x = mul(x, x);
  }
  return y;
}

bool is_number(const Tensor& x) {
  return x.defined() && !is_floating(x.dtype()) && x.dtype() != DType::boolean;
}

}  // namespace

Tensor apply_pointwise(std::string_view op, Pointwise f, const Tensor& x, double s, double t) {
  TraceSpan span(op);
  check_floating(op, x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).pointwise(op, x, f, y, x, s, t);
  const bool keeps_result = f == Pointwise::exp || f == Pointwise::sqrt || f == Pointwise::tanh ||
                            f == Pointwise::sigmoid;
  return record(op, y, {x}, [op, f, s, t, kept = save(keeps_result ? y : x)](const Tensor& g) {
    if (backward_is_recorded()) return gradient_of_ops(f, g, kept(), s, t);
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
Tensor abs(const Tensor& x) {
  if (is_number(x)) return x.dtype() == DType::u8 ? x.clone() : where(lt(x, 0), neg(x), x);
  return apply_pointwise("abs", Pointwise::abs, x);
}
Tensor pow(const Tensor& x, double exponent) {
  if (widens(x)) return pow(widened(x), exponent);
  if (is_number(x)) {
    if (exponent != std::floor(exponent)) return pow(cast(x, DType::f32), exponent);
    PEAL_CHECK(exponent >= 0 && exponent <= 64, "pow: expected an exponent in [0, 64] for ",
               x.dtype(), " ", x.shape(), ", got ", exponent, "; cast to a floating type first");
    return multiplied(x, static_cast<std::int64_t>(exponent));
  }
  return apply_pointwise("pow", Pointwise::pow, x, exponent);
}
Tensor clamp(const Tensor& x, double low, double high) {
  if (is_number(x)) return clamped(x, low, high);
  return apply_pointwise("clamp", Pointwise::clamp, x, low, high);
}

}  // namespace peal
