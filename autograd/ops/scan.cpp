// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

#include <limits>

namespace peal {
namespace {

// The gradient of a running sum is the running sum from the other end.
Tensor running_sum(const Tensor& x, int dim, bool reversed) {
  TraceSpan span("cumsum");
  const Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).cumsum("cumsum", x, out, x, dim, reversed);
  return record("cumsum", out, {x},
                [dim, reversed](const Tensor& g) { return running_sum(g, dim, !reversed); });
}

Tensor scanned(std::string_view op, Scan which, const Tensor& x, int dim, bool reversed,
               DType result) {
  TraceSpan span(op);
  const Tensor out = Tensor::empty(x.shape(), result, x.device());
  kernels(x.device()).scan(op, x, which, out, x, dim, reversed);
  return out;
}

Tensor running_product(const Tensor& x, int dim);

// The gradient of running products from those of lines [.., i, n] without their element i, which is
// to be differentiated in turn: what is 0 now need not stay so.
Tensor product_gradient(const Tensor& g, const Tensor& x, int dim) {
  const Tensor lines = unsqueeze(movedim(x, dim, -1), -2),
               grads = unsqueeze(movedim(g, dim, -1), -2);
  const Tensor place = arange(x.size(dim), DType::i64, x.device()), own = unsqueeze(place, 1);
  const Tensor without = running_product(where(eq(own, place), 1.0, lines), lines.dim() - 1);
  const Tensor dx = sum(where(le(own, place), grads * without, 0.0), {-1});
  return movedim(dx, -1, dim);
}

// An element goes into its own product and all after it: their sum, each over the element, unless
// that is 0. Of the first 0 of a line it is the sum of the products without it, and after that 0
// there is nothing.
Tensor running_product(const Tensor& x, int dim) {
  const Tensor y = scanned("cumprod", Scan::prod, x, dim, false, x.dtype());
  return record("cumprod", y, {x}, [x = save(x), y = save(y), dim](const Tensor& grad) {
    const DType within = computed_in(grad.dtype());
    const Tensor wide = cast(x(), within), g = cast(grad, within), none = eq(wide, 0);
    if (backward_is_recorded() && any(none).item<bool>()) {
      return cast(product_gradient(g, wide, dim), grad.dtype());
    }
    const Tensor zeros = running_sum(cast(none, DType::i64), dim, false);
    const Tensor first = logical_and(none, eq(zeros, 1));
    const Tensor without = running_product(where(first, 1.0, wide), dim);
    const Tensor before = running_sum(g * cast(y(), within), dim, true) / where(none, 1.0, wide);
    const Tensor at_first = where(first, running_sum(g * without, dim, true), 0.0);
    return cast(where(eq(zeros, 0), before, at_first), grad.dtype());
  });
}

// dx[i] = the sum of g[k] e^(x[i] - y[k]) over k >= i: in logarithms, of what is above and below 0,
// so that no power is too large. As ops less of it is held back, by the largest y.
Tensor log_sum_gradient(const Tensor& g, const Tensor& x, const Tensor& y, int dim) {
  if (backward_is_recorded()) {
    const Tensor most = max(y.detach(), dim, true).values;
    return exp(x - most) * running_sum(g * exp(most - y), dim, true);
  }
  const auto part = [&](const Tensor& above) {
    const Tensor logs =
        scanned("logcumsumexp", Scan::logsumexp, log(above) - y, dim, true, x.dtype());
    return exp(logs + x);
  };
  const Tensor zero = Tensor::zeros({}, g.dtype(), g.device());
  return part(where(gt(g, 0), g, zero)) - part(where(lt(g, 0), -g, zero));
}

Extreme best_so_far(std::string_view op, Scan which, const Tensor& x, int dim) {
  const OpName name(op);
  const Tensor places = scanned(op, which, x, checked_dim(op, x, dim), false, DType::i64);
  return {gather(x, dim, places), places};
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  const OpName op("cumsum");
  if (widens(x)) return cumsum(widened(x), dim);
  return running_sum(is_floating(x.dtype()) ? x : cast(x, DType::i64),
                     checked_dim("cumsum", x, dim), false);
}

Tensor cumprod(const Tensor& x, int dim) {
  const OpName op("cumprod");
  if (widens(x)) return cumprod(widened(x), dim);
  return running_product(is_floating(x.dtype()) ? x : cast(x, DType::i64),
                         checked_dim("cumprod", x, dim));
}

Tensor logcumsumexp(const Tensor& x, int dim) {
  const OpName op("logcumsumexp");
  check_floating("logcumsumexp", x);
  const int at = checked_dim("logcumsumexp", x, dim);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const Tensor y = scanned("logcumsumexp", Scan::logsumexp, wide, at, false, wide.dtype());
  return cast(record("logcumsumexp", y, {wide},
                     [wide = save(wide), y = save(y), at](const Tensor& g) {
                       return log_sum_gradient(g, wide(), y(), at);
                     }),
              x.dtype());
}

Extreme cummax(const Tensor& x, int dim) { return best_so_far("cummax", Scan::max, x, dim); }
Extreme cummin(const Tensor& x, int dim) { return best_so_far("cummin", Scan::min, x, dim); }

Tensor diff(const Tensor& x, int n, int dim) {
  const OpName op("diff");
  const int at = checked_dim("diff", x, dim);
  PEAL_CHECK(n >= 0, "diff: expected n >= 0, got ", n);
  Tensor y = x;
  for (int i = 0; i < n; ++i) {
    const std::int64_t size = std::max<std::int64_t>(y.size(at) - 1, 0);
    if (y.size(at) == 0) return y;
    const Tensor above = narrow(y, at, 1, size), below = narrow(y, at, 0, size);
    y = x.dtype() == DType::boolean ? logical_xor(above, below) : above - below;
  }
  return y;
}

}  // namespace peal
