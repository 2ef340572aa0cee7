// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/pointwise_functions.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/tape.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace peal {
namespace {

// The slope of gelu: P + x p of the normal distribution. Its own is p (2 - x x), of ops.
Tensor slope_of_gelu(const Tensor& x) {
  const OpName op("gelu");
  const Tensor slope = ones(x.shape(), x.dtype(), x.device());
  kernels(x.device()).pointwise_backward("gelu", x, Pointwise::gelu, slope, slope, x, 0, 0);
  return record("gelu", slope, {x}, [x = save(x)](const Tensor& g) {
    constexpr double at_zero = 0.39894228040143267794;
    const Tensor squares = x() * x();
    return g * exp(squares * -0.5) * (2.0 - squares) * at_zero;
  });
}

// x where it is below 0, else 0: of which an exponential stays finite.
Tensor below_zero(const Tensor& x) {
  return clamp(x, -std::numeric_limits<double>::infinity(), 0.0);
}

// The gradient as ops, to be differentiated in turn. `at` is x or y, as pointwise.def says.
Tensor gradient_of_ops(Pointwise f, const Tensor& g, const Tensor& at, double s, double t) {
  using namespace std::numbers;
  const auto zero = [&] { return full({}, 0, g.dtype(), g.device()); };
  switch (f) {
    case Pointwise::exp:
      return g * at;
    case Pointwise::log:
      return g / at;
    case Pointwise::sqrt:
      return g / (at * 2.0);
    case Pointwise::abs:
      return where(gt(at, 0), g, where(lt(at, 0), -g, zero()));
    case Pointwise::tanh:
      return g * (1.0 - at * at);
    case Pointwise::sigmoid:
      return g * at * (1.0 - at);
    case Pointwise::gelu:
      return g * slope_of_gelu(at);
    case Pointwise::gelu_tanh: {
      const double c = std::sqrt(2 / pi), cubic = 0.044715;
      const Tensor squares = at * at, h = tanh((at + at * squares * cubic) * c);
      return g * (0.5 * (1.0 + h) + 0.5 * at * (1.0 - h * h) * c * (1.0 + 3 * cubic * squares));
    }
    case Pointwise::pow:
      return s == 0 ? g * 0.0 : g * pow(at, s - 1) * s;
    case Pointwise::clamp:
      return where(logical_and(gt(at, s), lt(at, t)), g, zero());
    case Pointwise::square:
      return g * at * 2.0;
    case Pointwise::reciprocal:
      return -g * at * at;
    case Pointwise::rsqrt:
      return g * at * at * at * -0.5;
    case Pointwise::exp2:
      return g * at * ln2;
    case Pointwise::expm1:
      return g * (at + 1.0);
    case Pointwise::log1p:
      return g / (at + 1.0);
    case Pointwise::log2:
      return g / at * log2e;
    case Pointwise::log10:
      return g / at * log10e;
    case Pointwise::erf:
      return g * exp(-(at * at)) * (2 * inv_sqrtpi);
    case Pointwise::erfc:
      return g * exp(-(at * at)) * (-2 * inv_sqrtpi);
    case Pointwise::erfinv:
      return g * exp(at * at) * (0.5 / inv_sqrtpi);
    case Pointwise::lgamma:
      return g * digamma(at);
    case Pointwise::digamma:
      return g * polygamma(1, at);
    case Pointwise::polygamma:
      return g * apply_pointwise("polygamma", Pointwise::polygamma, at, s + 1);
    case Pointwise::sin:
      return g * cos(at);
    case Pointwise::cos:
      return -g * sin(at);
    case Pointwise::tan:
      return g * (1.0 + at * at);
    case Pointwise::asin:
      return g * rsqrt(1.0 - at * at);
    case Pointwise::acos:
      return -g * rsqrt(1.0 - at * at);
    case Pointwise::atan:
      return g / (1.0 + at * at);
    case Pointwise::sinh:
      return g * cosh(at);
    case Pointwise::cosh:
      return g * sinh(at);
    case Pointwise::asinh:
      return g * rsqrt(at * at + 1.0);
    case Pointwise::acosh:
      return g * rsqrt(at * at - 1.0);
    case Pointwise::atanh:
      return g / (1.0 - at * at);
    case Pointwise::floor:
    case Pointwise::ceil:
    case Pointwise::round:
    case Pointwise::trunc:
    case Pointwise::sign:
      return Tensor::zeros(g.shape(), g.dtype(), g.device());
    case Pointwise::frac:
      return g;
    case Pointwise::silu: {
      const Tensor share = sigmoid(at);
      return g * share * (1.0 + at * (1.0 - share));
    }
    case Pointwise::mish: {
      const Tensor share = tanh(softplus(at));
      return g * (share + at * (1.0 - share * share) * sigmoid(at));
    }
    case Pointwise::softplus:
      return where(gt(at * s, t), g, g * sigmoid(at * s));
    case Pointwise::logsigmoid:
      return g * sigmoid(-at);
    case Pointwise::elu:
      return where(gt(at, 0), g, g * exp(below_zero(at)) * s);
    case Pointwise::selu: {
      const double scale = functor::selu_scale<double>;
      return where(gt(at, 0), g * scale,
                   g * exp(below_zero(at)) * (scale * functor::selu_alpha<double>));
    }
    case Pointwise::celu:
      return where(gt(at, 0), g, g * exp(below_zero(at) / s));
    case Pointwise::leaky_relu:
      return where(gt(at, 0), g, g * s);
    case Pointwise::hardsigmoid:
      return where(lt(abs(at), 3), g / 6.0, zero());
    case Pointwise::hardswish:
      return where(le(at, -3), zero(), where(ge(at, 3), g, g * (at / 3.0 + 0.5)));
    case Pointwise::softsign: {
      const Tensor size = 1.0 + abs(at);
      return g / (size * size);
    }
    case Pointwise::tanhshrink: {
      const Tensor h = tanh(at);
      return g * h * h;
    }
    case Pointwise::hardshrink:
    case Pointwise::softshrink:
      return where(le(abs(at), s), zero(), g);
    case Pointwise::threshold:
      return where(le(at, s), zero(), g);
  }
  return {};
}

}  // namespace

Tensor apply_pointwise(std::string_view op, Pointwise f, const Tensor& x, double s, double t) {
  TraceSpan span(op);
  check_floating(op, x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).pointwise(op, x, f, y, x, s, t);
  return record(op, y, {x}, [op, f, s, t, kept = save(keeps_result(f) ? y : x)](const Tensor& g) {
    if (backward_is_recorded()) return gradient_of_ops(f, g, kept(), s, t);
    Tensor dx = like_or_over(g);
    kernels(g.device()).pointwise_backward(op, g, f, dx, g, kept(), s, t);
    return dx;
  });
}

}  // namespace peal
