// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

Tensor compared(std::string_view op, Compare which, const Tensor& a, const Tensor& b) {
  if (promotes(a, b)) return compared(op, which, promoted(a, b), promoted(b, a));
  TraceSpan span(op);
  check_alike(op, a, b);
  Tensor out = Tensor::empty(broadcast(op, a.shape(), b.shape()), DType::boolean, a.device());
  kernels(a.device()).compare(op, a, which, out, a, b);
  return out;
}

Tensor compared(std::string_view op, Compare which, const Tensor& a, double b) {
  check_value(op, b, a.dtype());
  return compared(op, which, a, full({}, b, a.dtype(), a.device()));
}

Tensor chosen(const Tensor& condition, const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device()).where("where", a, out, condition, a, b);
  return out;
}

}  // namespace

#define PEAL_COMPARISON(name)                                                                    \
  Tensor name(const Tensor& a, const Tensor& b) { return compared(#name, Compare::name, a, b); } \
  Tensor name(const Tensor& a, double b) { return compared(#name, Compare::name, a, b); }
PEAL_COMPARISON(eq)
PEAL_COMPARISON(ne)
PEAL_COMPARISON(lt)
PEAL_COMPARISON(le)
PEAL_COMPARISON(gt)
PEAL_COMPARISON(ge)
#undef PEAL_COMPARISON

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (promotes(a, b)) return where(condition, promoted(a, b), promoted(b, a));
  TraceSpan span("where");
  check_alike("where", a, b);
  PEAL_CHECK(condition.dtype() == DType::boolean && condition.device() == a.device(),
             "where: expected a bool condition on ", a.device(), ", got ", condition.dtype(), " ",
             condition.shape(), " on ", condition.device());
  const Shape shape =
      broadcast("where", condition.shape(), broadcast("where", a.shape(), b.shape()));
  return record(
      "where", chosen(condition, a, b, shape), {a, b},
      [condition = save(condition), sa = a.shape(), sb = b.shape()](const Tensor& g, Needs needs) {
        const Tensor zero = full({}, 0, g.dtype(), g.device());
        Tensors grads(2);
        if (needs[0]) grads[0] = sum_to(chosen(condition(), g, zero, g.shape()), sa);
        if (needs[1]) grads[1] = sum_to(chosen(condition(), zero, g, g.shape()), sb);
        return grads;
      });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  TraceSpan span("cast");
  const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).cast("cast", x, y, x);
  if (!is_floating(dtype)) return y;
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& g) {
    Tensor dx = Tensor::empty(g.shape(), from, g.device());
    kernels(g.device()).cast("cast", g, dx, g);
    return dx;
  });
}

}  // namespace peal
