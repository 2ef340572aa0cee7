// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace peal {

std::pair<Tensor, Tensor> alike(std::string_view op, const Tensor& a, const Tensor& b) {
  const OpName name(op);
  PEAL_CHECK(a.device() == b.device(), op, ": both operands must be on one device, got ",
             a.device(), " and ", b.device());
  const DType dtype = result_type(a, b);
  return {cast(a, dtype), cast(b, dtype)};
}

Tensor number(std::string_view op, Scalar value, DType dtype, Device device) {
  const OpName name(op);
  if (value.is_integral() && dtype == DType::i64 && !value.fits_double()) {
    return Tensor::scalar(value.to<std::int64_t>(), device);
  }
  check_value(op, value.to<double>(), dtype);
  return full({}, value.to<double>(), dtype, device);
}

double checked_number(std::string_view op, const Tensor& x, double s) {
  PEAL_CHECK(x.dtype() != DType::boolean, op, ": a mask (bool) of shape ", x.shape(),
             " is no number; cast(x, DType::f32) or cast(x, DType::i64) makes it one");
  if (is_floating(x.dtype())) return s;
  return visit(x.dtype(), [&]<class T>() -> double {
    if constexpr (std::is_integral_v<T>) {
      // A subtrahend comes negated.
      const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
      const bool is_value =
          s == std::floor(s) && s < end && s >= (std::is_signed_v<T> ? -end : 1 - end);
      PEAL_CHECK(is_value, op, ": ", s, " is not a value of ", x.dtype(), ", the type of shape ",
                 x.shape());
      if constexpr (sizeof(T) < sizeof(std::int64_t)) {
        return static_cast<double>(static_cast<T>(static_cast<std::int64_t>(s)));
      }
    }
    return s;
  });
}

}  // namespace peal
