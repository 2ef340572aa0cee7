// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/reduce.h>

#include <limits>

namespace peal {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

Tensor nowhere(const Tensor& x) { return Tensor::zeros(x.shape(), DType::boolean, x.device()); }

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace

Tensor isnan(const Tensor& x) {
  const OpName op("isnan");
  return is_floating(x.dtype()) ? ne(x, x) : nowhere(x);
}
Tensor isinf(const Tensor& x) {
  const OpName op("isinf");
  return is_floating(x.dtype()) ? eq(abs(x.detach()), endless) : nowhere(x);
}
Tensor isfinite(const Tensor& x) {
  const OpName op("isfinite");
  return is_floating(x.dtype()) ? lt(abs(x.detach()), endless) : logical_not(nowhere(x));
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  const OpName op("nan_to_num");
  if (!is_floating(x.dtype())) return x.clone();
  const double largest = largest_of(x.dtype());
  const Tensor finite = where(isnan(x), nan, x);
  const Tensor below = where(eq(finite, endless), posinf.value_or(largest), finite);
  return where(eq(below, -endless), neginf.value_or(-largest), below);
}

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const OpName op("isclose");
  check_alike("isclose", a, b);
  PEAL_CHECK(rtol >= 0 && atol >= 0, "isclose: expected tolerances of at least 0, got ", rtol,
             " and ", atol);
  const NoGrad guard;
  const DType within = is_floating(a.dtype()) ? computed_in(a.dtype()) : DType::f64;
  const Tensor x = cast(a, within), y = cast(b, within), away = abs(x - y);
  Tensor close = logical_and(isfinite(away), le(away, abs(y) * rtol + atol)) | eq(a, b);
  if (equal_nan) close = close | logical_and(isnan(x), isnan(y));
  return close;
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const OpName op("allclose");
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  const OpName op("equal");
  check_alike("equal", a, b);
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>();
}

}  // namespace peal
