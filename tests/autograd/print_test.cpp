// SPDX-License-Identifier: Apache-2.0
// Tensors as text. The rules are held against PyTorch's repr() by torch_values.py.
#include <iostream>

#include <peal/autograd/core/tensor.h>

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

using namespace peal;

namespace {

Tensor of(const std::vector<float>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace

TEST_CASE("by << and by fmt") {
  const Tensor x = of({1, 2.5, -3, 4}, {2, 2});
  const std::string expected = "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]])";
  CHECK(to_string(x) == expected);
  CHECK(fmt::format("{}", x) == expected);
  CHECK(concat("x = ", x) == "x = " + expected);
  std::ostringstream out;
  out << x << " and " << Tensor();
  CHECK(out.str() == expected + " and undefined tensor");
  std::ostringstream about;
  about << x.shape() << ' ' << Shape() << ' ' << x.dtype() << ' ' << x.device();
  CHECK(about.str() == "[2, 2] [] f32 cpu");
}

TEST_CASE("one width for all, and whole numbers without a fraction") {
  CHECK(to_string(Tensor::scalar(3.5f)) == "tensor(3.5000)");
  CHECK(to_string(of({1, 20}, {2})) == "tensor([ 1., 20.])");
  CHECK(to_string(of({1e-5f, 1}, {2})) == "tensor([1.0000e-05, 1.0000e+00])");
  CHECK(to_string(of({NAN, -INFINITY, 1}, {3})) == "tensor([nan, -inf, 1.])");
  CHECK(to_string(Tensor::from(std::vector<std::int64_t>{1, -20, 300}, {3})) ==
        "tensor([  1, -20, 300])");
  const bool mask[] = {true, false};
  CHECK(to_string(Tensor::from(std::span<const bool>(mask), {2})) == "tensor([ True, False])");
}

TEST_CASE("what is unusual is said") {
  CHECK(to_string(Tensor::zeros({2}, DType::f64)) == "tensor([0., 0.], dtype=f64)");
  CHECK(to_string(Tensor::zeros({0, 3})) == "tensor([], size=(0, 3))");
  CHECK(to_string(Tensor::zeros({0}, DType::i64)) == "tensor([], dtype=i64)");
}

TEST_CASE("of many elements the ends") {
  std::vector<std::int32_t> values(1100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  CHECK(to_string(Tensor::from(values, {1100})) ==
        "tensor([   0,    1,    2,  ..., 1097, 1098, 1099], dtype=i32)");
  CHECK(to_string(Tensor::from(values, {550, 2})) ==
        "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n"
        "        [1094, 1095],\n        [1096, 1097],\n        [1098, 1099]], dtype=i32)");
}
