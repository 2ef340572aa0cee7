// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

Tensor compared(std::string_view op, Compare which, const Tensor& a, const Tensor& b) {
  TraceSpan span(op);
  if (a.dtype() != b.dtype()) {
    const auto [x, y] = alike(op, a, b);
    return compared(op, which, x, y);
  }
  check_alike(op, a, b);
  Tensor out = Tensor::empty(broadcast(op, a.shape(), b.shape()), DType::boolean, a.device());
  kernels(a.device()).compare(op, a, which, out, a, b);
  return out;
}

Tensor compared(std::string_view op, Compare which, const Tensor& a, Scalar b) {
  const OpName name(op);
  const DType dtype = result_type(a, b);
  return compared(op, which, cast(a, dtype), number(op, b, dtype, a.device()));
}

Tensor mask_of(std::string_view op, const Tensor& x) {
  const OpName name(op);
  return x.dtype() == DType::boolean ? x : ne(x, 0);
}

// Whether a & b is that of integers, of which a mask beside them is 0 and 1.
bool of_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  const DType dtype = promote_types(a.dtype(), b.dtype());
  return !is_floating(dtype) && dtype != DType::boolean;
}

void check_mask(std::string_view op, const Tensor& x) {
  const OpName name(op);
  PEAL_CHECK(x.dtype() == DType::boolean, op, ": expected a mask (bool), got ", x.dtype(), " ",
             x.shape(), "; compare first, or take logical_and, logical_or, logical_not");
}

}  // namespace

#define PEAL_COMPARISON(name)                                                                    \
  Tensor name(const Tensor& a, const Tensor& b) { return compared(#name, Compare::name, a, b); } \
  Tensor name(const Tensor& a, Scalar b) { return compared(#name, Compare::name, a, b); }
PEAL_COMPARISON(eq)
PEAL_COMPARISON(ne)
PEAL_COMPARISON(lt)
PEAL_COMPARISON(le)
PEAL_COMPARISON(gt)
PEAL_COMPARISON(ge)
#undef PEAL_COMPARISON

// false < true: a > !b where both hold, a >= !b where one does.
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return gt(mask_of("logical_and", a), eq(mask_of("logical_and", b), false));
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return ge(mask_of("logical_or", a), eq(mask_of("logical_or", b), false));
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return ne(mask_of("logical_xor", a), mask_of("logical_xor", b));
}
Tensor logical_not(const Tensor& x) { return eq(mask_of("logical_not", x), false); }

Tensor operator&(const Tensor& a, const Tensor& b) {
  if (of_bits(a, b)) return bitwise_and(a, b);
  check_mask("&", a);
  check_mask("&", b);
  return logical_and(a, b);
}
Tensor operator|(const Tensor& a, const Tensor& b) {
  if (of_bits(a, b)) return bitwise_or(a, b);
  check_mask("|", a);
  check_mask("|", b);
  return logical_or(a, b);
}
Tensor operator^(const Tensor& a, const Tensor& b) {
  if (of_bits(a, b)) return bitwise_xor(a, b);
  check_mask("^", a);
  check_mask("^", b);
  return logical_xor(a, b);
}
Tensor operator~(const Tensor& x) {
  if (of_bits(x, x)) return bitwise_not(x);
  check_mask("~", x);
  return logical_not(x);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  TraceSpan span("where");
  if (a.dtype() != b.dtype()) {
    const auto [x, y] = alike("where", a, b);
    return where(condition, x, y);
  }
  check_alike("where", a, b);
  PEAL_CHECK(condition.dtype() == DType::boolean && condition.device() == a.device(),
             "where: expected a bool condition on ", a.device(), ", got ", condition.dtype(), " ",
             condition.shape(), " on ", condition.device());
  const Shape shape =
      broadcast("where", condition.shape(), broadcast("where", a.shape(), b.shape()));
  const Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device()).where("where", a, out, condition, a, b);
  return record(
      "where", out, {a, b},
      [condition = save(condition), sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
        const Tensor zero = full({}, 0, g.dtype(), g.device());
        Tensors grads(2);
        if (needs[0]) grads[0] = sum_to(where(condition(), g, zero), sa);
        if (needs[1]) grads[1] = sum_to(where(condition(), zero, g), sb);
        return grads;
      });
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const OpName name("where");
  const DType dtype = result_type(a, b);
  return where(condition, cast(a, dtype), number("where", b, dtype, a.device()));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const OpName name("where");
  const DType dtype = result_type(b, a);
  return where(condition, number("where", a, dtype, b.device()), cast(b, dtype));
}
Tensor where(const Tensor& condition, Scalar a, Scalar b) {
  const OpName name("where");
  const DType dtype = result_type(a, b);
  const Device device = condition.device();
  return where(condition, number("where", a, dtype, device), number("where", b, dtype, device));
}

Tensor cast(const Tensor& x, DType dtype) {
  const OpName name("cast");
  if (x.dtype() == dtype) return x;
  TraceSpan span("cast");
  const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).cast("cast", x, y, x);
  if (!is_floating(dtype)) return y;
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& g) { return cast(g, from); });
}

}  // namespace peal
