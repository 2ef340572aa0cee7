// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/tape.h>

#include <cstddef>
#include <cstdint>

namespace peal {
namespace {

Tensor run_binary(std::string_view op, Binary which, const Tensor& a, const Tensor& b) {
  TraceSpan span(op);
  check_alike(op, a, b);
  Tensor out = Tensor::empty(broadcast(op, a.shape(), b.shape()), a.dtype(), a.device());
  kernels(a.device()).binary(op, a, which, out, a, b);
  return out;
}

Tensor run_unary(std::string_view op, Unary which, const Tensor& x, double s) {
  TraceSpan span(op);
  const double value = checked_number(op, x, s);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).unary(op, x, which, out, x, value);
  return out;
}

// What a true division computes in.
DType divisible(DType dtype) { return is_floating(dtype) ? dtype : DType::f32; }

// Whether x and s are computed as they are, by a kernel that takes a double.
bool plain(const Tensor& x, Scalar s) { return result_type(x, s) == x.dtype() && s.fits_double(); }
Tensor as_tensor(std::string_view op, const Tensor& x, Scalar s) {
  return number(op, s, result_type(x, s), x.device());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const OpName op("add");
  if (a.dtype() != b.dtype()) {
    const auto [x, y] = alike("add", a, b);
    return add(x, y);
  }
  if (a.dtype() == DType::boolean) return logical_or(a, b);
  return record(
      "add", run_binary("add", Binary::add, a, b), {a, b},
      [sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
        return Tensors{needs[0] ? sum_to(g, sa) : Tensor(), needs[1] ? sum_to(g, sb) : Tensor()};
      });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const OpName op("sub");
  PEAL_CHECK(a.dtype() != DType::boolean && b.dtype() != DType::boolean,
             "sub: masks (bool) have no difference; where they differ is a ^ b (logical_xor), and "
             "cast(x, DType::i64) makes numbers of them");
  if (a.dtype() != b.dtype()) {
    const auto [x, y] = alike("sub", a, b);
    return sub(x, y);
  }
  return record("sub", run_binary("sub", Binary::sub, a, b), {a, b},
                [sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
                  return Tensors{needs[0] ? sum_to(g, sa) : Tensor(),
                                 needs[1] ? neg(sum_to(g, sb)) : Tensor()};
                });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const OpName op("mul");
  if (a.dtype() != b.dtype()) {
    const auto [x, y] = alike("mul", a, b);
    return mul(x, y);
  }
  if (a.dtype() == DType::boolean) return logical_and(a, b);
  return record("mul", run_binary("mul", Binary::mul, a, b), {a, b},
                [a = save(a), b = save(b)](const Tensor& g, Needs needs) {
                  return Tensors{needs[0] ? sum_to(g * b(), a().shape()) : Tensor(),
                                 needs[1] ? sum_to(g * a(), b().shape()) : Tensor()};
                });
}

Tensor div(const Tensor& a, const Tensor& b) {
  const OpName op("div");
  const DType dtype = divisible(result_type(a, b));
  if (a.dtype() != dtype || b.dtype() != dtype) return div(cast(a, dtype), cast(b, dtype));
  return record("div", run_binary("div", Binary::div, a, b), {a, b},
                [a = save(a), b = save(b)](const Tensor& g, Needs needs) {
                  const Tensor over_b = g / b();
                  return Tensors{
                      needs[0] ? sum_to(over_b, a().shape()) : Tensor(),
                      needs[1] ? sum_to(neg(over_b * (a() / b())), b().shape()) : Tensor()};
                });
}

Tensor add(const Tensor& a, Scalar b) {
  const OpName op("add");
  if (!plain(a, b) || a.dtype() == DType::boolean) {
    return add(cast(a, result_type(a, b)), as_tensor("add", a, b));
  }
  return record("add", run_unary("add", Unary::add_scalar, a, b.to<double>()), {a},
                [](const Tensor& g) { return g; });
}

Tensor sub(const Tensor& a, Scalar b) {
  const OpName op("sub");
  if (!plain(a, b) || a.dtype() == DType::boolean || b.is_boolean()) {
    PEAL_CHECK(!b.is_boolean(), "sub: true and false are no numbers to subtract");
    return sub(a, as_tensor("sub", a, b));
  }
  return record("sub", run_unary("sub", Unary::add_scalar, a, -b.to<double>()), {a},
                [](const Tensor& g) { return g; });
}

Tensor mul(const Tensor& a, Scalar b) {
  const OpName op("mul");
  if (!plain(a, b) || a.dtype() == DType::boolean) {
    return mul(cast(a, result_type(a, b)), as_tensor("mul", a, b));
  }
  return record("mul", run_unary("mul", Unary::mul_scalar, a, b.to<double>()), {a},
                [b](const Tensor& g) { return mul(g, b); });
}

Tensor div(const Tensor& a, Scalar b) {
  const OpName op("div");
  const Tensor over = cast(a, divisible(result_type(a, b)));
  return record("div", run_unary("div", Unary::div_scalar, over, b.to<double>()), {over},
                [b](const Tensor& g) { return div(g, b); });
}

Tensor operator-(Scalar a, const Tensor& b) {
  const OpName op("sub");
  PEAL_CHECK(b.dtype() != DType::boolean,
             "sub: a mask (bool) has no difference to a number; its opposite is ~x");
  return add(neg(cast(b, result_type(b, a))), a);
}

Tensor operator/(Scalar a, const Tensor& b) {
  const OpName op("div");
  const DType dtype = divisible(result_type(b, a));
  return div(number("div", a.to<double>(), dtype, b.device()), cast(b, dtype));
}

Tensor neg(const Tensor& a) {
  const OpName op("neg");
  PEAL_CHECK(a.dtype() != DType::boolean,
             "neg: a mask (bool) has no negative; for its opposite take ~x or logical_not(x)");
  return record("neg", run_unary("neg", Unary::mul_scalar, a, -1), {a},
                [](const Tensor& g) { return neg(g); });
}

void add_(Tensor&& x, const Tensor& y, double alpha) {
  check_temporary("add_", x);
  const Tensor& here = x;
  add_(here, y, alpha);
}

void add_(const Tensor& x, const Tensor& y, double alpha) {
  TraceSpan span("add_");
  check_in_place("add_", x);
  check_source("add_", y);
  check_alike("add_", x, y);
  PEAL_CHECK(x.shape() == y.shape(), "add_: expected shape ", x.shape(), ", got ", y.shape());
  const double by = checked_number("add_", x, alpha);
  // Elements that overlap elsewhere would be read after they were written.
  const auto bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  const auto to = reinterpret_cast<std::uintptr_t>(x.raw()),
             from = reinterpret_cast<std::uintptr_t>(y.raw());
  const bool apart = to == from || to + bytes <= from || from + bytes <= to;
  kernels(x.device()).axpy("add_", x, x, apart ? y : y.detach().clone(), by);
  x.storage()->bump_version();
}

void mul_(Tensor&& x, double factor) {
  check_temporary("mul_", x);
  const Tensor& here = x;
  mul_(here, factor);
}

void mul_(const Tensor& x, double factor) {
  TraceSpan span("mul_");
  check_in_place("mul_", x);
  const double by = checked_number("mul_", x, factor);
  kernels(x.device()).unary("mul_", x, Unary::mul_scalar, x, x, by);
  x.storage()->bump_version();
}

}  // namespace peal
