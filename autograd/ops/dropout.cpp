// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {

Tensor dropout(const Tensor& x, double p, bool training) {
  check_floating("dropout", x);
  PEAL_CHECK(p >= 0 && p <= 1, "dropout: expected a probability in [0, 1], got ", p);
  if (!training || p == 0) return x;
  if (p == 1) return mul(x, 0.0);
  TraceSpan span("dropout");
  const double scale = 1 / (1 - p);
  const auto threshold = static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  const RandomRange words = context().generator.reserve(static_cast<std::uint64_t>(x.numel()));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor mask = Tensor::empty(x.shape(), DType::u8, x.device());
  kernels(x.device()).dropout("dropout", x, y, mask, x, words, threshold, scale);
  return record("dropout", y, {x}, [mask, scale](const Tensor& g) {
    Tensor dx = like_or_over(g);
    kernels(g.device()).dropout_backward("dropout", g, dx, g, mask, scale);
    return dx;
  });
}

}  // namespace peal
