// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// The gradient to one operand, in the type that is computed in; null: none flows.
using Slope = Tensor (*)(const Tensor& g, const Tensor& a, const Tensor& b);

Tensor of_pair(std::string_view op, BinaryMath which, const Tensor& a, const Tensor& b,
               Slope to_a = nullptr, Slope to_b = nullptr) {
  TraceSpan span(op);
  const auto [x, y] = alike(op, a, b);
  const Tensor out = Tensor::empty(broadcast(op, x.shape(), y.shape()), x.dtype(), x.device());
  kernels(x.device()).binary_math(op, x, which, out, x, y);
  if (to_a == nullptr) return out;
  return record(op, out, {x, y},
                [x = save(x), y = save(y), to_a, to_b](const Tensor& g, Needs needs) {
                  const DType within = computed_in(g.dtype());
                  const auto slope = [&](Slope to, const Tensor& of) {
                    const Tensor grad = to(cast(g, within), cast(x(), within), cast(y(), within));
                    return cast(sum_to(grad, of.shape()), g.dtype());
                  };
                  return Tensors{needs[0] ? slope(to_a, x()) : Tensor(),
                                 needs[1] ? slope(to_b, y()) : Tensor()};
                });
}

Tensor real(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, DType::f32); }
Tensor of_reals(std::string_view op, BinaryMath which, const Tensor& a, const Tensor& b, Slope to_a,
                Slope to_b) {
  const OpName name(op);
  const bool whole = !is_floating(result_type(a, b));
  return of_pair(op, which, whole ? real(a) : a, whole ? real(b) : b, to_a, to_b);
}

Tensor as_operand(std::string_view op, Scalar value, const Tensor& x) {
  return number(op, value, result_type(x, value), x.device());
}

void check_divisor(std::string_view op, const Tensor& a, const Tensor& b) {
  const OpName name(op);
  if (is_floating(result_type(a, b)) || b.device() != Device{} || b.numel() == 0) return;
  PEAL_CHECK(!any(eq(b, 0)).item<bool>(), op, ": division of ", a.dtype(), " ", a.shape(),
             " by 0, of which integers have no quotient; cast one to a floating type");
}

Tensor where_larger(const Tensor& g, const Tensor& mine, const Tensor& other) {
  return where(lt(mine, other), 0.0, where(eq(mine, other), g * 0.5, g));
}

// By squaring: all bits of the exponent in turn.
Tensor integer_power(const Tensor& base, const Tensor& exponent) {
  const auto [a, b] = alike("pow", base, exponent);
  const Tensor times = abs(b);
  Tensor power = where(eq(times, times), 1, a), square_of = a;
  for (int bit = 0; bit < 6; ++bit) {
    const Tensor set = ne(bitwise_and(bitwise_right_shift(times, bit), 1), 0);
    power = where(set, power * square_of, power);
    square_of = square_of * square_of;
  }
  return where(logical_and(lt(b, 0), ne(abs(a), 1)), 0, power);
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) {
  return of_pair(
      "maximum", BinaryMath::maximum, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return where_larger(g, x, y); },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return where_larger(g, y, x); });
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return of_pair(
      "minimum", BinaryMath::minimum, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return where_larger(g, -x, -y); },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return where_larger(g, -y, -x); });
}
Tensor fmax(const Tensor& a, const Tensor& b) {
  return of_pair(
      "fmax", BinaryMath::fmax, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return where(logical_or(ge(x, y), ne(y, y)), g, 0.0);
      },
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return where(logical_or(ge(x, y), ne(y, y)), 0.0, g);
      });
}
Tensor fmin(const Tensor& a, const Tensor& b) {
  return of_pair(
      "fmin", BinaryMath::fmin, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return where(logical_or(le(x, y), ne(y, y)), g, 0.0);
      },
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return where(logical_or(le(x, y), ne(y, y)), 0.0, g);
      });
}
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  const OpName op("clamp");
  return minimum(maximum(x, low), high);
}
Tensor clamp_min(const Tensor& x, const Tensor& low) {
  const OpName op("clamp_min");
  return maximum(x, low);
}
Tensor clamp_max(const Tensor& x, const Tensor& high) {
  const OpName op("clamp_max");
  return minimum(x, high);
}

Tensor pow(const Tensor& base, const Tensor& exponent) {
  const OpName op("pow");
  if (!is_floating(result_type(base, exponent))) return integer_power(base, exponent);
  return of_pair(
      "pow", BinaryMath::pow, base, exponent,
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return where(eq(y, 0), 0.0, g * y * pow(x, y - 1.0));
      },
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        const Tensor none = logical_and(eq(x, 0), ge(y, 0));
        return where(none, 0.0, g * pow(x, y) * log(where(none, 1.0, x)));
      });
}
Tensor pow(Scalar base, const Tensor& exponent) {
  const OpName op("pow");
  return pow(as_operand("pow", base, exponent), exponent);
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  check_divisor("floor_divide", a, b);
  return of_pair("floor_divide", BinaryMath::floor_divide, a, b);
}
Tensor floor_divide(const Tensor& a, Scalar b) {
  return floor_divide(a, as_operand("floor_divide", b, a));
}
Tensor div(const Tensor& a, const Tensor& b, Rounding rounding) {
  if (rounding == Rounding::floor) return floor_divide(a, b);
  const OpName op("div");
  if (is_floating(result_type(a, b))) return trunc(div(a.detach(), b.detach()));
  check_divisor("div", a, b);
  const auto [x, y] = alike("div", a, b);
  return floor_divide(sub(x, fmod(x, y)), y);
}
Tensor div(const Tensor& a, Scalar b, Rounding rounding) {
  return div(a, as_operand("div", b, a), rounding);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
  check_divisor("remainder", a, b);
  return of_pair(
      "remainder", BinaryMath::remainder, a, b,
      [](const Tensor& g, const Tensor&, const Tensor&) { return g; },
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return -g * floor_divide(x.detach(), y.detach());
      });
}
Tensor remainder(const Tensor& a, Scalar b) {
  const OpName op("remainder");
  return remainder(a, as_operand("remainder", b, a));
}
Tensor remainder(Scalar a, const Tensor& b) { return remainder(as_operand("remainder", a, b), b); }
Tensor fmod(const Tensor& a, const Tensor& b) {
  check_divisor("fmod", a, b);
  return of_pair(
      "fmod", BinaryMath::fmod, a, b,
      [](const Tensor& g, const Tensor&, const Tensor&) { return g; },
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        return -g * trunc(x.detach() / y.detach());
      });
}
Tensor fmod(const Tensor& a, Scalar b) {
  const OpName op("fmod");
  return fmod(a, as_operand("fmod", b, a));
}

namespace {

// Over 1 at the origin, which has no angle: slopes are 0 there.
Tensor squared_radius(const Tensor& y, const Tensor& x) {
  const Tensor square = x * x + y * y;
  return where(eq(square, 0), 1.0, square);
}

}  // namespace

Tensor atan2(const Tensor& a, const Tensor& b) {
  return of_reals(
      "atan2", BinaryMath::atan2, a, b,
      [](const Tensor& g, const Tensor& y, const Tensor& x) {
        return g * x / squared_radius(y, x);
      },
      [](const Tensor& g, const Tensor& y, const Tensor& x) {
        return -g * y / squared_radius(y, x);
      });
}
Tensor hypot(const Tensor& a, const Tensor& b) {
  return of_reals(
      "hypot", BinaryMath::hypot, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * (x / hypot(x, y)); },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * (y / hypot(x, y)); });
}
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return of_reals(
      "logaddexp", BinaryMath::logaddexp, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * sigmoid(x - y); },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * sigmoid(y - x); });
}
Tensor xlogy(const Tensor& a, const Tensor& b) {
  return of_reals(
      "xlogy", BinaryMath::xlogy, a, b,
      [](const Tensor& g, const Tensor& x, const Tensor& y) {
        const Tensor none = logical_and(eq(x, 0), le(y, 0));
        return where(none, 0.0, g * log(where(none, 1.0, y)));
      },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * x / y; });
}

#define PEAL_BITWISE(name, which)                   \
  Tensor name(const Tensor& a, const Tensor& b) {   \
    return of_pair(#name, BinaryMath::which, a, b); \
  }                                                 \
  Tensor name(const Tensor& a, Scalar b) { return name(a, as_operand(#name, b, a)); }
PEAL_BITWISE(bitwise_and, bitwise_and)
PEAL_BITWISE(bitwise_or, bitwise_or)
PEAL_BITWISE(bitwise_xor, bitwise_xor)
PEAL_BITWISE(bitwise_left_shift, left_shift)
PEAL_BITWISE(bitwise_right_shift, right_shift)
#undef PEAL_BITWISE
Tensor bitwise_not(const Tensor& x) {
  const OpName op("bitwise_not");
  if (x.dtype() == DType::boolean) return logical_not(x);
  PEAL_CHECK(!is_floating(x.dtype()), "bitwise_not: expected integers or a mask (bool), got ",
             x.dtype(), " ", x.shape());
  return x.dtype() == DType::u8 ? bitwise_xor(x, 255) : bitwise_xor(x, -1);
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const OpName op("lerp");
  return a + (b - a) * weight;
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  const OpName op("lerp");
  return a + (b - a) * weight;
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  const OpName op("addcmul");
  return x + a * b * value;
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  const OpName op("addcdiv");
  return x + a / b * value;
}

}  // namespace peal
