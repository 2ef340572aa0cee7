// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/factory.h>

namespace peal {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  const OpName op("full");
  check_value("full", value, dtype);
  Tensor out = Tensor::empty(shape, dtype, device);
  kernels(device).fill("full", out, out, value);
  return out;
}

Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

Tensor arange(std::int64_t n, DType dtype, Device device) {
  const OpName op("arange");
  PEAL_CHECK(n >= 0, "arange: a count must not be negative, got ", n);
  Tensor out = Tensor::empty({n}, dtype, device);
  kernels(device).arange("arange", out, out);
  return out;
}

Tensor uniform(const Shape& shape, double low, double high, DType dtype, Device device) {
  const OpName op("uniform");
  PEAL_CHECK(low <= high, "uniform: expected low <= high, got [", low, ", ", high, ")");
  Tensor out = Tensor::empty(shape, dtype, device);
  check_floating("uniform", out);
  const auto words = context().generator.reserve(static_cast<std::uint64_t>(out.numel()));
  kernels(device).uniform("uniform", out, out, words, low, high);
  return out;
}

Tensor randn(const Shape& shape, DType dtype, Device device) {
  const OpName op("randn");
  Tensor out = Tensor::empty(shape, dtype, device);
  check_floating("randn", out);
  const auto words = context().generator.reserve(static_cast<std::uint64_t>(out.numel() + 1));
  kernels(device).normal("randn", out, out, words);
  return out;
}

void fill_(Tensor&& x, double value) {
  check_temporary("fill_", x);
  const Tensor& here = x;
  fill_(here, value);
}

void fill_(const Tensor& x, double value) {
  const OpName op("fill_");
  check_in_place("fill_", x);
  check_value("fill_", value, x.dtype());
  kernels(x.device()).fill("fill_", x, x, value);
  x.storage()->bump_version();
}

}  // namespace peal
