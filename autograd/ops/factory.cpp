// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace peal {
namespace {

void fill_with(const char* op, const Tensor& x, double value) {
  const auto fill = [op, value](const Tensor& all) {
    kernels(all.device()).fill(op, all, all, value);
  };
  if (!defer_write(x, fill)) fill(x);
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, std::optional<DType> dtype, Device device) {
  const OpName op("full");
  const DType type = dtype.value_or(value.dtype());
  if (!value.fits_double()) {
    return stretched_to("full", number("full", value, type, device), shape);
  }
  check_value("full", value.to<double>(), type);
  const Tensor out = empty_or_deferred(shape, type, device);
  fill_with("full", out, value.to<double>());
  return out;
}

Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  const Tensor out = empty_or_deferred(shape, dtype, device);
  out.zero_();
  return out;
}
Tensor empty(const Shape& shape, DType dtype, Device device) {
  return empty_or_deferred(shape, dtype, device);
}

Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  return Tensor::zeros(x.shape(), dtype.value_or(x.dtype()), x.device());
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  return ones(x.shape(), dtype.value_or(x.dtype()), x.device());
}
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype) {
  const OpName op("full_like");
  const Tensor one = number("full_like", value, dtype.value_or(x.dtype()), x.device());
  return stretched_to("full_like", one, x.shape());
}
Tensor empty_like(const Tensor& x, std::optional<DType> dtype) {
  return Tensor::empty(x.shape(), dtype.value_or(x.dtype()), x.device());
}

namespace {

Tensor counting(std::int64_t n, DType dtype, Device device) {
  const Tensor out = Tensor::empty({n}, dtype, device);
  kernels(device).arange("arange", out, out);
  return out;
}

}  // namespace

Tensor arange(Scalar end, std::optional<DType> dtype, Device device) {
  const OpName op("arange");
  PEAL_CHECK(end.to<double>() >= 0, "arange: a count must not be negative, got ", end);
  return counting(static_cast<std::int64_t>(std::ceil(end.to<double>())),
                  dtype.value_or(end.dtype()), device);
}

Tensor arange(Scalar start, Scalar end, Scalar step, std::optional<DType> dtype, Device device) {
  const OpName op("arange");
  const double by = step.to<double>(), length = end.to<double>() - start.to<double>();
  PEAL_CHECK(by != 0 && std::isfinite(length) && std::isfinite(by) && length / by >= 0,
             "arange: steps of ", step, " do not lead from ", start, " to ", end);
  const bool whole = !start.is_floating() && !end.is_floating() && !step.is_floating();
  const auto n = static_cast<std::int64_t>(std::ceil(length / by));
  // In i64 or f64, and cast, so that no step adds to a rounded one.
  const Tensor places = counting(n, whole ? DType::i64 : DType::f64, device);
  const Tensor values = whole ? places * step.to<std::int64_t>() + start.to<std::int64_t>()
                              : places * by + start.to<double>();
  return cast(values, dtype.value_or(whole ? DType::i64 : DType::f32));
}

namespace {

// Number i of `steps` from start to end, from the nearer end.
double between(double start, double end, std::int64_t steps, std::int64_t i) {
  if (steps == 1) return start;
  const double step = (end - start) / static_cast<double>(steps - 1);
  return 2 * i < steps ? start + step * static_cast<double>(i)
                       : end - step * static_cast<double>(steps - 1 - i);
}

Tensor spaced(std::string_view op, std::int64_t steps, DType dtype, Device device,
              const std::function<double(std::int64_t)>& value) {
  const OpName name(op);
  PEAL_CHECK(steps >= 0, op, ": expected at least 0 steps, got ", steps);
  std::vector<double> values;
  for (std::int64_t i = 0; i < steps; ++i) values.push_back(value(i));
  return cast(Tensor::from(values, {steps}, device), dtype);
}

}  // namespace

Tensor linspace(double start, double end, std::int64_t steps, DType dtype, Device device) {
  return spaced("linspace", steps, dtype, device,
                [=](std::int64_t i) { return between(start, end, steps, i); });
}
Tensor logspace(double start, double end, std::int64_t steps, double base, DType dtype,
                Device device) {
  return spaced("logspace", steps, dtype, device,
                [=](std::int64_t i) { return std::pow(base, between(start, end, steps, i)); });
}

Tensor eye(std::int64_t n, std::optional<std::int64_t> m, DType dtype, Device device) {
  const OpName op("eye");
  const std::int64_t columns = m.value_or(n), length = std::min(n, columns);
  PEAL_CHECK(length >= 0, "eye: expected sizes, got ", n, " and ", columns);
  Steps steps{};
  steps[0] = columns + 1;
  return zeros_but("eye", ones({length}, dtype, device), {n, columns}, steps, 0);
}

void fill_(Tensor&& x, Scalar value) {
  check_temporary("fill_", x);
  const Tensor& here = x;
  fill_(here, value);
}

void fill_(const Tensor& x, Scalar value) {
  const OpName op("fill_");
  check_in_place("fill_", x);
  if (!value.fits_double()) return x.detach().copy_(full_like(x, value));
  check_value("fill_", value.to<double>(), x.dtype());
  fill_with("fill_", x, value.to<double>());
  x.storage()->bump_version();
}

}  // namespace peal
