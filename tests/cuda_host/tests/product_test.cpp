// SPDX-License-Identifier: Apache-2.0
// Layers whose products do more than multiply (bias, its gradient, gelu and its gradient) on a
// device against the CPU, at a block's widths: results and gradients. The reference is the CPU's
// f32 of the same operands.
#include <peal/autograd/ops/ops.h>

#include "both.h"

using namespace peal;
using namespace peal::test;

namespace {

constexpr Device accelerator{DeviceType::cuda, 0};

// The simulator's products are slow.
#ifdef PEAL_TEST_ON_GPU
constexpr std::int64_t rows = 256, width = 768, hidden = 3072;
#else
constexpr std::int64_t rows = 24, width = 48, hidden = 192;
#endif

// Of a size that keeps a layer's results near 1, where gelu bends.
Tensor weight(DType dtype, std::int64_t out, std::int64_t in, unsigned seed) {
  const double factor = 1 / std::sqrt(static_cast<double>(in));
  return cast(random(DType::f32, {out, in}, seed) * factor, dtype);
}

// f's result and the gradients of all operands.
template <class F>
Tensors results(const F& f, const Tensors& x, DType dtype, Device device) {
  Tensors operands;
  for (const Tensor& each : x) {
    operands.push_back(cast(each, dtype).to(device).detach());
    operands.back().set_requires_grad();
  }
  const Tensor y = f(operands);
  y.backward(cast(cast(random(DType::f32, y.shape(), 9), x[0].dtype()), dtype).to(device));
  Tensors all{y.detach()};
  for (const Tensor& each : operands) all.push_back(each.grad());
  return all;
}

template <class F>
void check(const F& f, const Tensors& x) {
  const DType dtype = x[0].dtype();
  const Tensors expected = results(f, x, DType::f32, Device{}),
                got = results(f, x, dtype, accelerator);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(got[i], expected[i]) <= bound_of(dtype));
  }
}

}  // namespace

TEST_CASE("a layer with a bias at a block's widths") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(concat(dtype));
    check([](const Tensors& t) { return linear(t[0], t[1], t[2]); },
          {random(dtype, {rows, width}, 1), weight(dtype, hidden, width, 2),
           random(dtype, {hidden}, 3)});
  }
}

TEST_CASE("two layers with gelu between them at a block's widths") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(concat(dtype));
    check(
        [](const Tensors& t) {
          return feed_forward(t[0], t[1], t[2], t[3], t[4], GeluApproximation::tanh);
        },
        {random(dtype, {rows, width}, 1), weight(dtype, hidden, width, 2),
         random(dtype, {hidden}, 3), weight(dtype, width, hidden, 4), random(dtype, {width}, 5)});
  }
}

TEST_CASE("large layers of low precision whose rows are of odd lengths") {
  // Words, as of a vocabulary, and a width.
  check([](const Tensors& t) { return linear(t[0], t[1], t[2]); },
        {random(DType::bf16, {520, 512}, 1), weight(DType::bf16, 1023, 512, 2),
         random(DType::bf16, {1023}, 3)});
  check([](const Tensors& t) { return linear(t[0], t[1]); },
        {random(DType::bf16, {520, 513}, 1), weight(DType::bf16, 1023, 513, 2)});
}
