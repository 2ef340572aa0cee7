// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/tape.h>

namespace peal {

Shape broadcast(std::string_view op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  Shape out = a.dim() >= b.dim() ? a : b;
  for (int i = 1; i <= std::min(a.dim(), b.dim()); ++i) {
    PEAL_CHECK(a[-i] == b[-i] || a[-i] == 1 || b[-i] == 1, op, ": shapes ", a, " and ", b,
               " do not broadcast: dimension ", -i, " is ", a[-i], " and ", b[-i]);
    out[-i] = a[-i] == 1 ? b[-i] : a[-i];
  }
  return out;
}

Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  const OpName op("sum");
  std::uint32_t dims = 0;
  const int added = g.dim() - shape.dim();
  for (int i = 0; i < g.dim(); ++i) {
    if (i < added || (shape[i - added] == 1 && g.size(i) != 1)) dims |= 1u << i;
  }
  Tensor out = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).sum("sum", g, out, g, dims, 1.0);
  return record("sum", out, {g},
                [whole = g.shape()](const Tensor& gg) { return expand_to(gg, whole); });
}

Tensor expand_to(const Tensor& x, const Shape& shape, double scale) {
  const OpName op("expand");
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  kernels(x.device()).expand("expand", x, out, x, scale);
  return record("expand", out, {x}, [part = x.shape(), scale](const Tensor& g) {
    const Tensor sum = sum_to(g, part);
    return scale == 1 ? sum : mul(sum, scale);
  });
}

}  // namespace peal
