// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/10-mixed-precision.md.
#include <peal/autograd/ops/ops.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

namespace {

using namespace peal;

// The first power of two to which 1 can be added without any effect.
double full_at(DType dtype) {
  double n = 1;
  while ((cast(tensor(n), dtype) + cast(tensor(1.0), dtype)).item<double>() > n) n *= 2;
  return n;
}

}  // namespace

TEST_CASE("10.1: counting by ones stops at 2^24, 2048 and 256") {
  CHECK(full_at(DType::f32) == 16777216);
  CHECK(full_at(DType::f16) == 2048);
  CHECK(full_at(DType::bf16) == 256);
}

TEST_CASE("10.2: a sum of bf16 is made in f32, and rounded once") {
  const Tensor ones_of_bf16 = cast(full({1000}, 1.0), DType::bf16);
  CHECK(sum(ones_of_bf16).item<double>() == 1000);
  Tensor by_hand = cast(tensor(0.0), DType::bf16);
  for (int i = 0; i < 1000; ++i) by_hand = by_hand + ones_of_bf16[i];
  CHECK(by_hand.item<double>() == 256);
}

TEST_CASE("10.3: f16 has room for 40 powers of two, so one factor serves gradients so far apart") {
  int fit = 0;
  for (int power = -60; power < 60; ++power) {
    const double x = cast(tensor(std::ldexp(1.0, power)), DType::f16).item<double>();
    fit += x > 0 && std::isfinite(x) ? 1 : 0;
  }
  CHECK(fit == 40);  // 2^-24 to 2^15
  // So 2^-40 wants a factor of 2^16 at least, and then 2^-1 is the largest that may come.
  const auto scaled = [](int power) {
    return cast(tensor(std::ldexp(1.0, power + 16)), DType::f16).item<double>();
  };
  CHECK(scaled(-40) > 0);
  CHECK(scaled(-41) == 0);
  CHECK(std::isfinite(scaled(-1)));
  CHECK(std::isinf(scaled(0)));
}
