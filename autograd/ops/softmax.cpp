// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {

Tensor softmax(const Tensor& x, int dim) {
  if (widens(x)) return softmax(widened(x), dim);
  TraceSpan span("softmax");
  check_floating("softmax", x);
  const int at = checked_dim("softmax", x, dim);
  if (at != x.dim() - 1) return as_result(transpose(softmax(transpose(x, at, -1)), at, -1));
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

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int dim, Generator& generator) {
  if (widens(logits)) return gumbel_softmax(widened(logits), tau, hard, dim, generator);
  constexpr std::string_view op = "gumbel_softmax";
  const OpName name(op);
  const TraceSpan span(op);
  check_floating(op, logits);
  PEAL_CHECK(tau > 0, op, ": expected a tau above 0, got ", tau);
  const int at = checked_dim(op, logits, dim);
  const DType within = computed_in(logits.dtype());
  const Tensor waits = Tensor::empty(logits.shape(), within, logits.device());
  exponential_(waits, 1, generator);
  const Tensor noise = -log(clamp(waits, 0x1p-49));  // a wait of 0 is drawn once in 2^48 times
  const Tensor scores = (cast(logits, within) + noise) / tau;
  const Tensor y = cast(softmax(scores, at), logits.dtype());
  if (!hard) return y;
  const Tensor soft = y.detach(), zeros = Tensor::zeros(y.shape(), y.dtype(), y.device());
  const Tensor one = scatter(zeros, at, argmax(scores.detach(), at, true), 1.0);
  return record(op, where(eq(soft, soft), one, soft), {y}, [](const Tensor& g) { return g; });
}

}  // namespace peal
