// SPDX-License-Identifier: Apache-2.0
// The ops of tests/autograd/op_cases.h on a simulated device against the CPU: outputs and
// gradients.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/autograd/op_cases.h>

#include "on_device.h"

#include <string>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;

namespace {

struct Result {
  Tensor y;
  Tensors gradients;
};

template <class T>
Result run(const OpCase& entry) {
  const Tensors x = inputs_of<T>(entry);
  Tensors constants;
  for (const Tensor& constant : entry.constants) {
    constants.push_back(constant.to(context().device));
  }
  Result result{entry.op(x, constants), {}};
  result.y.backward(normal<T>(result.y.shape(), 50));
  for (const Tensor& input : x) result.gradients.push_back(input.grad());
  return result;
}

template <class T>
void check(double bound) {
  const std::vector<OpCase> all = all_cases();
  const OnDevice device;
  for (const OpCase& entry : all) {
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    const Result got = run<T>(entry);
    context().device = {};
    const Result expected = run<T>(entry);
    context().device = {DeviceType::cuda, 0};
    CHECK(got.y.device().type == DeviceType::cuda);
    CHECK(got.y.dtype() == expected.y.dtype());
    CHECK(distance(got.y, expected.y) < bound);
    for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
      CHECK(distance(got.gradients[k], expected.gradients[k]) < bound);
    }
  }
}

}  // namespace

TEST_CASE("f32 agrees with the CPU") { check<float>(1e-5); }
TEST_CASE("f64 agrees with the CPU") { check<double>(1e-12); }
// Attention takes what its scores' gradients have in common from the rounded result: on CUDA, and
// on the CPU with a mask, which is by ops there. The same number of units for both types.
TEST_CASE("f16 agrees with the CPU") { check<Half>(0x1.4p-9); }
TEST_CASE("bf16 agrees with the CPU") { check<BFloat16>(0x1.4p-6); }

TEST_CASE("a copy on another device is on the tape, there and back") {
  const Device device{DeviceType::cuda, 0};
  const Tensor x = normal<float>({3, 5}, 1).set_requires_grad(), w = normal<float>({3, 5}, 2);
  const Tensor there = (x * 2.0).to(device);
  CHECK(there.device() == device);
  sum((there * w.to(device)).to(Device{}) + x).backward();
  CHECK(x.grad().device() == Device{});
  CHECK(distance(x.grad(), w * 2.0 + 1.0) < 1e-6);
}

TEST_CASE("what integers and masks can do agrees with the CPU") {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{-3, 0, 2, 5}, {4});
  const Tensor y = Tensor::from(std::vector<std::int64_t>{1, 0, -2}, {3, 1});
  const std::vector<std::function<Tensor(const Tensor&, const Tensor&)>> functions = {
      [](const Tensor& a, const Tensor&) { return abs(a); },
      [](const Tensor& a, const Tensor&) { return clamp(a, -1, 2); },
      [](const Tensor& a, const Tensor&) { return pow(a, 3); },
      [](const Tensor& a, const Tensor&) { return a / 2.0; },
      [](const Tensor& a, const Tensor&) { return 6.0 / (a + 4.0); },
      [](const Tensor& a, const Tensor& b) { return b / (abs(a) + 1.0); },
      [](const Tensor& a, const Tensor& b) { return logical_and(a, b); },
      [](const Tensor& a, const Tensor& b) { return logical_or(a, b); },
      [](const Tensor& a, const Tensor& b) { return logical_xor(a, b); },
      [](const Tensor& a, const Tensor& b) { return (gt(a, 0) & ~gt(b, 0)) | eq(a, b); },
  };
  const Device device{DeviceType::cuda, 0};
  for (const auto& f : functions) {
    const Tensor got = f(x.to(device), y.to(device)), expected = f(x, y);
    CHECK(got.dtype() == expected.dtype());
    CHECK(doubles(got) == doubles(expected));
  }
}
