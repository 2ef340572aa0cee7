// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>

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
  std::uint32_t dims = 0;
  const int added = g.dim() - shape.dim();
  for (int i = 0; i < g.dim(); ++i) {
    if (i < added || (shape[i - added] == 1 && g.size(i) != 1)) dims |= 1u << i;
  }
  Tensor out = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).sum("sum", g, out, g, dims, 1.0);
  return out;
}

}  // namespace peal
