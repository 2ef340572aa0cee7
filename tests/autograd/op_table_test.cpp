// SPDX-License-Identifier: Apache-2.0
// The ops of the table: f64 gradients against central differences; f32, f16 and bf16 against f64,
// forward and backward.
#include "gradcheck.h"
#include "op_cases.h"

#include <peal/autograd/ops/choose.h>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;

TEST_CASE("f64 gradients agree with central differences") {
  for (const OpCase& entry : all_cases()) {
    std::int64_t elements = 0;
    for (const Input& input : entry.inputs) elements += input.shape.numel();
    // The large ones, of which each element would be two runs, are held against PyTorch alone.
    if (!entry.derivative || elements > 2000) continue;
    const auto f = [&](const Tensors& x) { return entry.op(x, entry.constants); };
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    CHECK(gradient_error(f, inputs_of<double>(entry)) < 1e-7);
  }
}

TEST_CASE("f32 agrees with f64") {
  for (const OpCase& entry : all_cases()) {
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    const Tensors wide = inputs_of<double>(entry), narrow = inputs_of<float>(entry);
    const Tensor reference = entry.op(wide, entry.constants), y = entry.op(narrow, entry.constants);
    CHECK(distance(y, reference) < 1e-5);
    reference.backward(normal<double>(y.shape(), 50));
    y.backward(normal<float>(y.shape(), 50));
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CHECK(distance(narrow[i].grad(), wide[i].grad()) < 1e-5);
    }
  }
}

namespace {

// In f16 or bf16 against f64 on the same numbers. The bound allows for the roundings between the
// ops of a case (softmax(x * 3) rounds x * 3) and for those of what backward starts from.
template <class T>
void check_low_precision(double bound) {
  for (const OpCase& entry : all_cases()) {
    CAPTURE(entry.torch);
    CAPTURE(concat(entry.inputs[0].shape));
    const Tensors narrow = inputs_of<T>(entry);
    Tensors wide;
    for (const Tensor& x : narrow) wide.push_back(cast(x.detach(), DType::f64).set_requires_grad());
    const Tensor reference = entry.op(wide, entry.constants), y = entry.op(narrow, entry.constants);
    CHECK(y.dtype() == dtype_of<T>);
    CHECK(distance(y, reference) < bound);
    const Tensor seed = normal<T>(y.shape(), 50);
    reference.backward(cast(seed, DType::f64));
    y.backward(seed);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CHECK(narrow[i].grad().dtype() == dtype_of<T>);
      // The slope of tanh where it is nearly 1 is a difference, 1 - y y.
      const double slack = entry.torch == "torch.tanh(x[0] * 8)" ? 4 : 1;
      CHECK(distance(narrow[i].grad(), wide[i].grad()) < slack * bound);
    }
  }
}

}  // namespace

TEST_CASE("f16 agrees with f64") { check_low_precision<Half>(0x1p-8); }

TEST_CASE("bf16 agrees with f64") { check_low_precision<BFloat16>(0x1p-5); }
