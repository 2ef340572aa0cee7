// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/rotary.h>
#include <peal/autograd/ops/shape.h>

#include <cmath>
#include <vector>

namespace peal {

Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options) {
  constexpr std::string_view op = "rotary_embedding";
  const OpName name(op);
  check_floating(op, x);
  PEAL_CHECK(x.dim() >= 2 && x.size(-1) > 0 && x.size(-1) % 2 == 0, op,
             ": expected [..., T, D] with an even D, got shape ", x.shape());
  const std::int64_t rows = x.size(-2), half = x.size(-1) / 2;
  std::vector<double> cosines, sines;
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(t + options.offset) *
          std::pow(options.base, -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const DType within = computed_in(x.dtype());
  const Tensor c = cast(Tensor::from(cosines, {rows, half}, x.device()), within);
  const Tensor s = cast(Tensor::from(sines, {rows, half}, x.device()), within);
  const Tensor wide = cast(x, within);
  const int step = options.interleaved ? 2 : 1;
  const Tensor a =
      options.interleaved ? slice(wide, -1, 0, 2 * half, step) : narrow(wide, -1, 0, half);
  const Tensor b =
      options.interleaved ? slice(wide, -1, 1, 2 * half, step) : narrow(wide, -1, half, half);
  const Tensor first = a * c - b * s, second = b * c + a * s;
  if (!options.interleaved) return cast(cat({first, second}, -1), x.dtype());
  return cast(reshape(stack({first, second}, -1), {x.shape().begin(), x.shape().end()}), x.dtype());
}

}  // namespace peal
