// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {
namespace {

Tensor run_binary(std::string_view op, Binary which, const Tensor& a, const Tensor& b) {
  TraceSpan span(op);
  check_alike(op, a, b);
  Tensor out = Tensor::empty(broadcast(op, a.shape(), b.shape()), a.dtype(), a.device());
  kernels(a.device()).binary(op, a, which, out, a, b);
  return out;
}

void check_whole(std::string_view op, const Tensor& x, double s) {
  PEAL_CHECK(x.dtype() != DType::boolean, op, ": a mask (bool) of shape ", x.shape(),
             " is no number; cast(x, DType::f32) or cast(x, DType::i64) makes it one");
  PEAL_CHECK(is_floating(x.dtype()) || s == std::floor(s), op, ": ", s, " is not a value of ",
             x.dtype(), ", the type of shape ", x.shape());
}

Tensor run_unary(std::string_view op, Unary which, const Tensor& x, double s) {
  TraceSpan span(op);
  check_whole(op, x, s);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).unary(op, x, which, out, x, s);
  return out;
}

bool masks(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.dtype() == DType::boolean && b.dtype() == DType::boolean;
}

// As an operand of a true division.
Tensor divisible(const Tensor& x) {
  return x.defined() && !is_floating(x.dtype()) ? cast(x, DType::f32) : x;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const OpName op("add");
  if (masks(a, b)) return logical_or(a, b);
  if (promotes(a, b)) return add(promoted(a, b), promoted(b, a));
  return record(
      "add", run_binary("add", Binary::add, a, b), {a, b},
      [sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
        return Tensors{needs[0] ? sum_to(g, sa) : Tensor(), needs[1] ? sum_to(g, sb) : Tensor()};
      });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const OpName op("sub");
  PEAL_CHECK(!masks(a, b),
             "sub: masks (bool) have no difference; where they differ is a ^ b (logical_xor), and "
             "cast(x, DType::i64) makes numbers of them");
  if (promotes(a, b)) return sub(promoted(a, b), promoted(b, a));
  return record("sub", run_binary("sub", Binary::sub, a, b), {a, b},
                [sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
                  return Tensors{needs[0] ? sum_to(g, sa) : Tensor(),
                                 needs[1] ? neg(sum_to(g, sb)) : Tensor()};
                });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (masks(a, b)) return logical_and(a, b);
  if (promotes(a, b)) return mul(promoted(a, b), promoted(b, a));
  return record("mul", run_binary("mul", Binary::mul, a, b), {a, b},
                [a = save(a), b = save(b)](const Tensor& g, Needs needs) {
                  return Tensors{needs[0] ? sum_to(g * b(), a().shape()) : Tensor(),
                                 needs[1] ? sum_to(g * a(), b().shape()) : Tensor()};
                });
}

Tensor div(const Tensor& a, const Tensor& b) {
  if (promotes(a, b)) return div(promoted(a, b), promoted(b, a));
  const Tensor over = divisible(a), under = divisible(b);
  if (!over.same_as(a) || !under.same_as(b)) return div(over, under);
  return record("div", run_binary("div", Binary::div, a, b), {a, b},
                [a = save(a), b = save(b)](const Tensor& g, Needs needs) {
                  const Tensor over_b = g / b();
                  return Tensors{
                      needs[0] ? sum_to(over_b, a().shape()) : Tensor(),
                      needs[1] ? sum_to(neg(over_b * (a() / b())), b().shape()) : Tensor()};
                });
}

Tensor add(const Tensor& a, double b) {
  return record("add", run_unary("add", Unary::add_scalar, a, b), {a},
                [](const Tensor& g) { return g; });
}

Tensor mul(const Tensor& a, double b) {
  return record("mul", run_unary("mul", Unary::mul_scalar, a, b), {a},
                [b](const Tensor& g) { return mul(g, b); });
}

Tensor div(const Tensor& a, double b) {
  const Tensor over = divisible(a);
  return record("div", run_unary("div", Unary::div_scalar, over, b), {over},
                [b](const Tensor& g) { return div(g, b); });
}

Tensor operator/(double a, const Tensor& b) {
  const OpName op("div");
  const Tensor under = divisible(b);
  return div(full({}, a, under.dtype(), under.device()), under);
}

Tensor neg(const Tensor& a) {
  PEAL_CHECK(!a.defined() || a.dtype() != DType::boolean,
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
  check_whole("add_", x, alpha);
  kernels(x.device()).axpy("add_", x, x, y, alpha);
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
  check_whole("mul_", x, factor);
  kernels(x.device()).unary("mul_", x, Unary::mul_scalar, x, x, factor);
  x.storage()->bump_version();
}

}  // namespace peal
