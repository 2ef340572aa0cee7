// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/pointwise.h>
#include <peal/autograd/ops/promotion.h>

#include <cmath>
#include <numbers>

namespace peal {
namespace {

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

// Functions of integers and masks that are not integers are computed in f32.
Tensor in_reals(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, DType::f32); }
// Those that keep integers as they are.
Tensor whole(std::string_view op, Pointwise f, const Tensor& x) {
  const OpName name(op);
  return is_number(x) ? x.clone() : apply_pointwise(op, f, x);
}

constexpr double infinite = std::numeric_limits<double>::infinity();

// Of integers exactly, where the bound may be one that a double does not hold.
Tensor bounded(std::string_view op, const Tensor& x, Scalar bound,
               Tensor (*of_integers)(const Tensor&, const Tensor&), double low, double high) {
  const OpName name(op);
  const Tensor y = cast(x, result_type(x, bound));
  if (std::isnan(low) || std::isnan(high)) return where(eq(y, y), NAN, y);
  if (is_floating(y.dtype())) return apply_pointwise(op, Pointwise::clamp, y, low, high);
  return of_integers(y, number(op, bound, y.dtype(), y.device()));
}

}  // namespace

// The steep ones are f32 under Autocast.
#define PEAL_FUNCTION(name)                                      \
  Tensor name(const Tensor& x) {                                 \
    const OpName op(#name);                                      \
    return apply_pointwise(#name, Pointwise::name, in_reals(x)); \
  }
#define PEAL_STEEP_FUNCTION(name)                                \
  Tensor name(const Tensor& x) {                                 \
    const OpName op(#name);                                      \
    if (widens(x)) return name(widened(x));                      \
    return apply_pointwise(#name, Pointwise::name, in_reals(x)); \
  }
PEAL_STEEP_FUNCTION(exp)
PEAL_STEEP_FUNCTION(exp2)
PEAL_STEEP_FUNCTION(expm1)
PEAL_STEEP_FUNCTION(log)
PEAL_STEEP_FUNCTION(log1p)
PEAL_STEEP_FUNCTION(log2)
PEAL_STEEP_FUNCTION(log10)
PEAL_STEEP_FUNCTION(reciprocal)
PEAL_STEEP_FUNCTION(rsqrt)
PEAL_STEEP_FUNCTION(tan)
PEAL_STEEP_FUNCTION(asin)
PEAL_STEEP_FUNCTION(acos)
PEAL_STEEP_FUNCTION(sinh)
PEAL_STEEP_FUNCTION(cosh)
PEAL_STEEP_FUNCTION(erfinv)
PEAL_FUNCTION(sqrt)
PEAL_FUNCTION(sin)
PEAL_FUNCTION(cos)
PEAL_FUNCTION(atan)
PEAL_FUNCTION(asinh)
PEAL_FUNCTION(acosh)
PEAL_FUNCTION(atanh)
PEAL_FUNCTION(erf)
PEAL_FUNCTION(erfc)
PEAL_FUNCTION(lgamma)
PEAL_FUNCTION(digamma)
#undef PEAL_STEEP_FUNCTION
#undef PEAL_FUNCTION

Tensor polygamma(std::int64_t n, const Tensor& x) {
  const OpName op("polygamma");
  PEAL_CHECK(n >= 0 && n <= 170, "polygamma: expected a derivative of order 0 to 170, got ", n);
  return apply_pointwise("polygamma", Pointwise::polygamma, in_reals(x), static_cast<double>(n));
}

Tensor floor(const Tensor& x) { return whole("floor", Pointwise::floor, x); }
Tensor ceil(const Tensor& x) { return whole("ceil", Pointwise::ceil, x); }
Tensor round(const Tensor& x) { return whole("round", Pointwise::round, x); }
Tensor trunc(const Tensor& x) { return whole("trunc", Pointwise::trunc, x); }
Tensor frac(const Tensor& x) { return apply_pointwise("frac", Pointwise::frac, x); }
Tensor round(const Tensor& x, int decimals) {
  const OpName op("round");
  if (is_number(x) && decimals >= 0) return x.clone();
  const double scale = std::pow(10.0, std::abs(decimals));
  return decimals < 0 ? round(x / scale) * scale : round(x * scale) / scale;
}

Tensor sign(const Tensor& x) {
  const OpName op("sign");
  if (!is_number(x)) return apply_pointwise("sign", Pointwise::sign, x);
  return sub(cast(gt(x, 0), x.dtype()), cast(lt(x, 0), x.dtype()));
}
Tensor abs(const Tensor& x) {
  if (is_number(x)) return x.dtype() == DType::u8 ? x.clone() : where(lt(x, 0), neg(x), x);
  return apply_pointwise("abs", Pointwise::abs, x);
}
Tensor square(const Tensor& x) {
  if (is_number(x)) return mul(x, x);
  return apply_pointwise("square", Pointwise::square, x);
}

Tensor pow(const Tensor& x, Scalar exponent) {
  if (widens(x)) return pow(widened(x), exponent);
  const OpName op("pow");
  const auto power = exponent.to<double>();
  if (is_number(x)) {
    if (exponent.is_floating()) return pow(cast(x, DType::f32), exponent);
    PEAL_CHECK(power >= 0 && power <= 64, "pow: expected an exponent in [0, 64] for ", x.dtype(),
               " ", x.shape(), ", got ", power, "; cast to a floating type first, or write it as ",
               power, ".0");
    return multiplied(x, exponent.to<std::int64_t>());
  }
  if (power == 2) return apply_pointwise("pow", Pointwise::square, x);
  return apply_pointwise("pow", Pointwise::pow, x, power);
}
Tensor clamp(const Tensor& x, double low, double high) {
  if (is_number(x)) return clamped(x, low, high);
  return apply_pointwise("clamp", Pointwise::clamp, x, low, high);
}
Tensor clamp_min(const Tensor& x, Scalar low) {
  return bounded("clamp_min", x, low, &maximum, low.to<double>(), infinite);
}
Tensor clamp_max(const Tensor& x, Scalar high) {
  return bounded("clamp_max", x, high, &minimum, -infinite, high.to<double>());
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  const OpName op("logit");
  if (widens(x)) return logit(widened(x), eps);
  const Tensor share = eps ? clamp(in_reals(x), *eps, 1 - *eps) : in_reals(x);
  const Tensor wide = cast(share, computed_in(share.dtype()));
  return cast(log(wide / (1.0 - wide)), share.dtype());
}
Tensor sinc(const Tensor& x) {
  const OpName op("sinc");
  const Tensor real = in_reals(x);
  const Tensor angle = cast(real, computed_in(real.dtype())) * std::numbers::pi;
  const Tensor none = eq(angle, 0.0), safe = where(none, 1.0, angle);
  return cast(where(none, 1.0, sin(safe) / safe), real.dtype());
}
Tensor deg2rad(const Tensor& x) { return mul(x, std::numbers::pi / 180); }
Tensor rad2deg(const Tensor& x) { return mul(x, 180 / std::numbers::pi); }

}  // namespace peal
