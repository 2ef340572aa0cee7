// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/tape.h>

namespace peal {

Tensor softmax(const Tensor& x, int dim) {
  if (widens(x)) return softmax(widened(x), dim);
  TraceSpan span("softmax");
  check_floating("softmax", x);
  const int at = checked_dim("softmax", x, dim);
  if (at != x.dim() - 1) return transpose(softmax(transpose(x, at, -1)), at, -1);
  PEAL_CHECK(x.size(-1) > 0 || x.numel() == 0, "softmax: expected at least one class, got shape ",
             x.shape());
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).softmax("softmax", x, y, x);
  return record("softmax", y, {x}, [y = save(y)](const Tensor& g) {
    if (backward_is_recorded()) return y() * (g - sum(g * y(), {-1}, true));
    Tensor dx = like_or_over(g);
    kernels(g.device()).softmax_backward("softmax", g, dx, y(), g);
    return dx;
  });
}

}  // namespace peal
