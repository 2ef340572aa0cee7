// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/over_dims.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/spread.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace peal {
namespace {

// pow(x, e) of x >= 0, whose gradient at 0 is 0.
Tensor power_of(const Tensor& x, double e) {
  const Tensor none = eq(x, 0), safe = where(none, 1.0, x);
  return where(none, e > 0 ? 0.0 : std::numeric_limits<double>::infinity(),
               e == 0.5 ? sqrt(safe) : pow(safe, e));
}

struct Moments {
  Tensor variance, mean;  // in the type that is computed in
};

Moments moments_over(std::string_view op, const Tensor& x, const OverDims& over, int correction) {
  const OpName name(op);
  check_floating(op, x);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const auto n = static_cast<double>(over.reduced);
  const OverDims keeping(x.shape(), over.mask, true);
  const Tensor mean = sum_over(op, wide, keeping) / n, away = wide - mean;
  const double left = std::max(n - correction, 0.0);
  const Tensor variance = reshaped(sum_over(op, square(away), keeping), over.result) / left;
  return {variance, reshaped(mean, over.result)};
}

Tensor var_over(std::string_view op, const Tensor& x, const OverDims& over, int correction) {
  return cast(moments_over(op, x, over, correction).variance, x.dtype());
}
Tensor std_over(const Tensor& x, const OverDims& over, int correction) {
  return cast(power_of(moments_over("std", x, over, correction).variance, 0.5), x.dtype());
}

Tensor norm_over(const Tensor& x, double p, const OverDims& over) {
  const OpName name("norm");
  check_floating("norm", x);
  const Tensor wide = cast(x, computed_in(x.dtype()));
  const OverDims keeping(x.shape(), over.mask, true);
  const auto given = [&](const Tensor& y) { return cast(reshaped(y, over.result), x.dtype()); };
  const Tensor size = p == 2 ? wide : abs(wide);
  if (std::isinf(p)) {
    std::vector<int> named;
    for (int i = 0; i < x.dim(); ++i) {
      if ((over.mask >> i) & 1) named.push_back(i);
    }
    if (over.reduced == 0 && p > 0) return full(over.result, 0, x.dtype(), x.device());
    return given(p > 0 ? amax(size, named, true) : amin(size, named, true));
  }
  if (p == 0) return given(cast(sum_over("norm", ne(wide, 0), keeping), wide.dtype()));
  if (p == 1) return given(sum_over("norm", size, keeping));
  const Tensor powers = p == 2 ? square(wide) : power_of(size, p);
  return given(power_of(sum_over("norm", powers, keeping), 1 / p));
}

}  // namespace

Tensor var(const Tensor& x, bool unbiased) {
  const OpName name("var");
  return var_over("var", x, OverDims(x), unbiased ? 1 : 0);
}
Tensor var(const Tensor& x, const Dims& dims, int correction, bool keepdim) {
  const OpName name("var");
  return var_over("var", x, OverDims("var", x, dims, keepdim), correction);
}
Tensor std(const Tensor& x, bool unbiased) {
  const OpName name("std");
  return std_over(x, OverDims(x), unbiased ? 1 : 0);
}
Tensor std(const Tensor& x, const Dims& dims, int correction, bool keepdim) {
  const OpName name("std");
  return std_over(x, OverDims("std", x, dims, keepdim), correction);
}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, int correction,
                                   bool keepdim) {
  const OpName name("var_mean");
  const Moments both =
      moments_over("var_mean", x, OverDims("var_mean", x, dims, keepdim), correction);
  return {cast(both.variance, x.dtype()), cast(both.mean, x.dtype())};
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, int correction,
                                   bool keepdim) {
  const OpName name("std_mean");
  const Moments both =
      moments_over("std_mean", x, OverDims("std_mean", x, dims, keepdim), correction);
  return {cast(power_of(both.variance, 0.5), x.dtype()), cast(both.mean, x.dtype())};
}

Tensor norm(const Tensor& x, double p) {
  const OpName name("norm");
  return norm_over(x, p, OverDims(x));
}
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  const OpName name("norm");
  return norm_over(x, p, OverDims("norm", x, dims, keepdim));
}

}  // namespace peal
