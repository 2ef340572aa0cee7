// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/dropout_draw.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {

namespace {

void check(std::string_view op, const Tensor& x, double p) {
  const OpName name(op);
  check_floating(op, x);
  PEAL_CHECK(p >= 0 && p <= 1, op, ": expected a probability in [0, 1], got ", p);
}

// y, which is x where the mask is 1, times `scale`.
Tensor recorded_dropout(const Tensor& x, const Tensor& y, const Tensor& mask, double scale) {
  return record("dropout", y, {x}, [mask, scale](const Tensor& g) {
    if (backward_is_recorded()) return mul(g * cast(mask, g.dtype()), scale);
    Tensor dx = like_or_over(g);
    kernels(g.device()).dropout_backward("dropout", g, dx, g, mask, scale);
    return dx;
  });
}

// [N, C, 1, ...]
Shape channels_of(std::string_view op, const Tensor& x) {
  PEAL_CHECK(x.dim() >= 2, op, ": expected [N, C, ...], got shape ", x.shape());
  Shape channels = x.shape();
  for (int i = 2; i < x.dim(); ++i) channels[i] = 1;
  return channels;
}

Tensor of_channels(std::string_view op, std::string_view sizes, int dims, const Tensor& x, double p,
                   bool training) {
  check(op, x, p);
  PEAL_CHECK(x.dim() == dims, op, ": expected ", sizes, ", got shape ", x.shape());
  return feature_dropout(x, p, training);
}

// One draw for each element of `drawn`, which stretches to x.
Tensor alpha_dropped(const Tensor& x, const Shape& drawn, double p, bool training) {
  if (!training || p == 0) return x;
  if (p == 1) return mul(x, 0.0);
  constexpr double least = -1.7580993408473766;  // -alpha lambda of SELU
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * least * least));
  // 1 where an element is kept.
  const Tensor kept = mul(dropout(ones(drawn, x.dtype(), x.device()), p), 1 - p);
  return x * (kept * scale) + (kept * (-scale * least) + scale * least * (1 - p));
}

}  // namespace

DropoutDraw draw_dropout(std::int64_t n, double p) {
  const auto threshold = static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  return {context().generator.reserve(static_cast<std::uint64_t>(n)), threshold, 1 / (1 - p)};
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check("dropout", x, p);
  if (!training || p == 0) return x;
  if (p == 1) return mul(x, 0.0);
  return dropped(x, draw_dropout(x.numel(), p));
}

Tensor dropped(const Tensor& x, const DropoutDraw& draw) {
  TraceSpan span("dropout");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor mask = Tensor::empty(x.shape(), DType::u8, x.device());
  kernels(x.device()).dropout("dropout", x, y, mask, x, draw.words, draw.threshold, draw.factor);
  return recorded_dropout(x, y, mask, draw.factor);
}

Tensor dropout_of_part(const Tensor& x, double p, int dim, std::int64_t part, std::int64_t parts) {
  check("dropout", x, p);
  const int at = dim < 0 ? dim + x.dim() : dim;
  PEAL_CHECK(at >= 0 && at < x.dim(), "dropout: expected a dimension ", dim, ", got shape ",
             x.shape());
  if (parts == 1 || p == 0 || p == 1) return dropout(x, p);
  TraceSpan span("dropout");
  Shape whole = x.shape();
  whole[at] *= parts;
  const DropoutDraw draw = draw_dropout(whole.numel(), p);
  Tensor mask = Tensor::empty(whole, DType::u8, x.device());
  {
    const NoGrad guard;
    const Tensor all = ones(whole, x.dtype(), x.device()),
                 unread = Tensor::empty(whole, x.dtype(), x.device());
    kernels(x.device())
        .dropout("dropout", all, unread, mask, all, draw.words, draw.threshold, draw.factor);
    mask = narrow(mask, at, part * x.size(at), x.size(at));
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).dropout_backward("dropout", x, y, x, mask, draw.factor);
  return recorded_dropout(x, y, mask, draw.factor);
}

Tensor feature_dropout(const Tensor& x, double p, bool training) {
  check("feature_dropout", x, p);
  const Shape channels = channels_of("feature_dropout", x);
  if (!training || p == 0) return x;
  return mul(x, dropout(ones(channels, x.dtype(), x.device()), p));
}

Tensor dropout1d(const Tensor& x, double p, bool training) {
  return of_channels("dropout1d", "[N, C, L]", 3, x, p, training);
}
Tensor dropout2d(const Tensor& x, double p, bool training) {
  return of_channels("dropout2d", "[N, C, H, W]", 4, x, p, training);
}
Tensor dropout3d(const Tensor& x, double p, bool training) {
  return of_channels("dropout3d", "[N, C, D, H, W]", 5, x, p, training);
}

Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  check("alpha_dropout", x, p);
  return alpha_dropped(x, x.shape(), p, training);
}

Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  check("feature_alpha_dropout", x, p);
  return alpha_dropped(x, channels_of("feature_alpha_dropout", x), p, training);
}

}  // namespace peal
