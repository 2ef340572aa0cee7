// SPDX-License-Identifier: Apache-2.0
// Functions of one element where tables of ordinary numbers do not look: at kinks and bounds, at
// infinities and NaN, of integers and masks. The numbers are PyTorch 2.15's.
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <limits>

using namespace peal;
using namespace peal::test;
using peal::testing::error_of;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), none = NAN;
using Doubles = std::vector<double>;
using Function = Tensor (*)(const Tensor&);

// In f64 and f32, whose loops are others, one by one and in vectors.
template <class F>
void check(const char* name, F f, const Doubles& x, const Doubles& y, const Doubles& slope) {
  CAPTURE(name);
  for (const DType dtype : {DType::f64, DType::f32}) {
    CAPTURE(concat(dtype));
    const auto n = static_cast<std::int64_t>(x.size());
    const Tensor once = cast(Tensor::from(x, {n}), dtype);
    const Tensor input = cat(Tensors(9, once)).set_requires_grad();
    const Tensor output = f(input);
    output.backward(ones(output.shape(), dtype));
    for (std::int64_t k = 0; k < 9; ++k) {
      CHECK(distance(output.detach().rows(k * n, (k + 1) * n), Tensor::from(y, {n})) < 1e-6);
      CHECK(distance(input.grad().rows(k * n, (k + 1) * n), Tensor::from(slope, {n})) < 1e-6);
    }
  }
}
#define CHECK_AT(call, ...) \
  check(                    \
      #call, [](const Tensor& x) { return call; }, __VA_ARGS__)

}  // namespace

TEST_CASE("activations at their kinks and beyond") {
  CHECK_AT(clamp(x, 0, 1), {-1, 0, 0.5, 1, 2, none}, {0, 0, 0.5, 1, 1, none}, {0, 0, 1, 0, 0, 0});
  CHECK_AT(hardtanh(x), {-1, 0, 1}, {-1, 0, 1}, {0, 1, 0});
  CHECK_AT(relu6(x), {0, 6, 7}, {0, 6, 6}, {0, 0, 0});
  CHECK_AT(hardsigmoid(x), {-3, 3, 0, none}, {0, 1, 0.5, none}, {0, 0, 1.0 / 6, 0});
  CHECK_AT(hardswish(x), {-3, 3, 0, 4, -4}, {0, 3, 0, 4, 0}, {0, 1, 0.5, 1, 0});
  CHECK_AT(leaky_relu(x), {0, none, -inf, inf}, {0, none, -inf, inf}, {0.01, 0.01, 0.01, 1});
  CHECK_AT(elu(x, 0.5), {0, -inf, inf, 200}, {0, -0.5, inf, 200}, {0.5, 0, 1, 1});
  CHECK_AT(selu(x), {0, -inf, inf}, {0, -1.7580993408473766, inf},
           {1.7580993408473766, 0, 1.0507009873554805});
  CHECK_AT(celu(x, 2), {0, -inf, inf}, {0, -2, inf}, {1, 0, 1});
  CHECK_AT(hardshrink(x), {0.5, -0.5, 0.625, none, inf}, {0, 0, 0.625, none, inf}, {0, 0, 1, 1, 1});
  CHECK_AT(softshrink(x), {0.5, -0.5, 0.625, none, inf}, {0, 0, 0.125, none, inf}, {0, 0, 1, 1, 1});
  CHECK_AT(threshold(x, 0.5, 9), {0.5, 0.625, none, -1}, {9, 0.625, none, 9}, {0, 1, 1, 0});
  CHECK_AT(softplus(x), {-inf, -100, 0, 20, 21, inf, none},
           {0, 0, 0.6931471805599453, 20.000000002061153, 21, inf, none},
           {0, 0, 0.5, 0.9999999979388464, 1, 1, none});
  CHECK_AT(logsigmoid(x), {-inf, -100, 0, 100, none}, {-inf, -100, -0.6931471805599453, 0, none},
           {1, 1, 0.5, 0, none});
  CHECK_AT(silu(x), {-100, 0, 100, none}, {0, 0, 100, none}, {0, 0.5, 1, none});
  CHECK_AT(mish(x), {-100, 0, 100, none}, {0, 0, 100, none}, {0, 0.6, 1, none});
  CHECK_AT(softsign(x), {0, 2, none}, {0, 2.0 / 3, none}, {1, 1.0 / 9, none});
}

TEST_CASE("functions where they jump, and outside of their domains") {
  CHECK_AT(round(x), {0.5, 1.5, -0.5, -2.5, none, inf}, {0, 2, 0, -2, none, inf},
           {0, 0, 0, 0, 0, 0});
  CHECK_AT(sign(x), {0, 3, -2, none, inf}, {0, 1, -1, 0, 1}, {0, 0, 0, 0, 0});
  CHECK_AT(floor(x), {1.5, -1.5, none}, {1, -2, none}, {0, 0, 0});
  CHECK_AT(frac(x), {1.25, -1.25, inf}, {0.25, -0.25, none}, {1, 1, 1});
  CHECK_AT(abs(x), {0, -2, none}, {0, 2, none}, {0, -1, 0});
  CHECK_AT(sinc(x), {0, 0.5}, {1, 0.6366197723675814}, {0, -1.2732395447351625});
  CHECK_AT(rsqrt(x), {0, 4, -1}, {inf, 0.5, none}, {-inf, -0.0625, none});
  CHECK_AT(pow(x, 2), {-3, 0}, {9, 0}, {-6, 0});
  CHECK_AT(pow(x, 0.5), {0, 4, -1}, {0, 2, none}, {inf, 0.25, none});
  CHECK_AT(pow(x, 0), {0, 4, -1}, {1, 1, 1}, {0, 0, 0});
  CHECK_AT(log1p(x), {-1, 0}, {-inf, 0}, {inf, 1});
  CHECK_AT(erfinv(x), {-1, 0, 1, 2, none}, {-inf, 0, inf, none, none},
           {inf, 0.8862269254527580, inf, none, none});
  CHECK_AT(lgamma(x), {1, 0, -1, -0.5}, {0, inf, inf, 1.2655121234846454},
           {-0.5772156649015329, -inf, none, 0.03648997397857652});
  CHECK_AT(digamma(x), {1, 0, -1, -0.5}, {-0.5772156649015329, -inf, none, 0.03648997397857652},
           {1.6449340668482264, inf, inf, 8.934802200544679});
  CHECK_AT(polygamma(1, x), {1, 0, -1, -0.5}, {1.6449340668482264, inf, inf, 8.934802200544679},
           {-2.4041138063191886, -inf, -inf, -0.8287966442343199});
  // Small numbers keep all their digits.
  const Tensor tiny = Tensor::from(Doubles{1e-20, -3e-15}, {2});
  for (const DType dtype : {DType::f64, DType::f32}) {
    CHECK(distance(expm1(cast(tiny, dtype)), tiny) < 1e-6);
    CHECK(distance(log1p(cast(tiny, dtype)), tiny) < 1e-6);
    CHECK(distance(elu(cast(tiny, dtype)), tiny) < 1e-6);
    CHECK(distance(erf(erfinv(cast(tiny, dtype))), tiny) < 1e-6);
  }
  CHECK(doubles(round(Tensor::from(Doubles{1.25, 171.5}, {2}), 1)) == Doubles{1.2, 171.5});
  CHECK(doubles(round(Tensor::from(Doubles{149, 151}, {2}), -2)) == Doubles{100, 200});
}

TEST_CASE("functions of integers are f32, or integers") {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{-2, 0, 3}, {3}), mask = gt(x, 0);
  for (const Function f : std::initializer_list<Function>{peal::floor, peal::ceil, peal::trunc}) {
    CHECK(f(x).to_vector<std::int64_t>() == std::vector<std::int64_t>{-2, 0, 3});
  }
  CHECK(round(x).dtype() == DType::i64);
  CHECK(sign(x).to_vector<std::int64_t>() == std::vector<std::int64_t>{-1, 0, 1});
  CHECK(square(x).to_vector<std::int64_t>() == std::vector<std::int64_t>{4, 0, 9});
  CHECK(hardtanh(x).to_vector<std::int64_t>() == std::vector<std::int64_t>{-1, 0, 1});
  CHECK(pow(x, 2).dtype() == DType::i64);
  CHECK(pow(x, 2.0).dtype() == DType::f32);
  for (const Function f : std::initializer_list<Function>{peal::exp, peal::sin, peal::erf, rsqrt,
                                                          reciprocal, peal::lgamma, digamma, erfinv,
                                                          peal::log1p, sigmoid, peal::tanh, sinc}) {
    for (const Tensor& each : {x, mask}) {
      const Tensor y = f(each);
      CHECK(y.dtype() == DType::f32);
      CHECK(distance(y, f(cast(each, DType::f32))) == 0);
    }
  }
  CHECK(error_of([&] { floor(mask); }) == "floor: expected a floating type, got bool [3]");
  CHECK(error_of([&] { frac(x); }) == "frac: expected a floating type, got i64 [3]");
  CHECK(error_of([&] { silu(x); }) == "silu: expected a floating type, got i64 [3]");
}

TEST_CASE("what an activation cannot do is said with its name") {
  const Tensor x = ones({2, 3});
  CHECK(error_of([&] { glu(x); }).find("glu: expected an even size along dimension -1") == 0);
  CHECK(error_of([&] { prelu(x, ones({2})); }).find("expected a weight [1] or [3]") !=
        std::string::npos);
  CHECK(error_of([&] { softshrink(x, -1); }).find("lambda >= 0") != std::string::npos);
  CHECK(error_of([&] { hardtanh(x, 1, 0); }).find("low <= high") != std::string::npos);
  CHECK(error_of([&] { celu(x, 0); }) == "celu: alpha must not be 0");
  CHECK(error_of([&] { rrelu(x, 1, 0.5); }).find("lower <= upper") != std::string::npos);
}

TEST_CASE("erf of erfinv is the number again, as near to 1 as numbers come") {
  Doubles x, rest;
  for (int k = 1; k <= 53; ++k) {
    x.push_back(1 - std::ldexp(1.0, -k));
    rest.push_back(std::ldexp(1.0, -k));
  }
  const Doubles found = doubles(erfc(erfinv(Tensor::from(x, {53}))));
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(found[i] == doctest::Approx(rest[i]).epsilon(1e-12));
  }
}

TEST_CASE("erfinv has the digits of its type") {
  std::vector<float> x;
  for (int k = -999; k <= 999; k += 2) x.push_back(static_cast<float>(k) / 1001);
  for (int k = 1; k <= 24; ++k) {
    for (const float sign : {-1.0f, 1.0f}) {
      x.push_back(sign * (1 - std::ldexp(1.0f, -k)));
      x.push_back(sign * std::ldexp(1.0f, -3 * k));
    }
  }
  const Tensor narrow = Tensor::from(x, {std::ssize(x)}), wide = cast(narrow, DType::f64);
  const Doubles found = doubles(erfinv(narrow)), exact = doubles(erfinv(wide)),
                again = doubles(erf(erfinv(wide)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    CHECK(found[i] == doctest::Approx(exact[i]).epsilon(5e-7).scale(0));
    CHECK(again[i] == doctest::Approx(static_cast<double>(x[i])).epsilon(1e-14).scale(0));
  }
}

TEST_CASE("polygamma of an order that no type holds is an error") {
  CHECK(error_of([] { polygamma(-1, ones({2})); }) ==
        "polygamma: expected a derivative of order 0 to 170, got -1");
  CHECK(error_of([] { polygamma(171, ones({2})); }).find("got 171") != std::string::npos);
  CHECK(std::isfinite(polygamma(170, full({}, 1.5, DType::f64)).item<double>()));
}

TEST_CASE("polygamma of the highest order has all its gradients, whose factorials no type holds") {
  const Tensor x = full({}, 8, DType::f64).set_requires_grad();
  const Tensor y = polygamma(170, x);
  const Tensor first = autograd::grad({y}, {x}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({first}, {x})[0];
  // Of such an order it is its first term, -(-1)^n n! / x^(n + 1), within 2e-9.
  CHECK(first.item<double>() / y.item<double>() == doctest::Approx(-171.0 / 8).epsilon(1e-8));
  CHECK(second.item<double>() / first.item<double>() == doctest::Approx(-172.0 / 8).epsilon(1e-8));
  CHECK(autograd::grad({polygamma(170, x)}, {x})[0].item<double>() == first.item<double>());
}

TEST_CASE("rrelu draws its slopes while training") {
  manual_seed(1);
  const Tensor x = neg(ones({1000}, DType::f64)).set_requires_grad();
  const Tensor y = rrelu(x, 0.25, 0.5, true);
  CHECK(max(y).item<double>() <= -0.25);
  CHECK(min(y).item<double>() > -0.5);
  CHECK(mean(y).item<double>() == doctest::Approx(-0.375).epsilon(0.02));
  sum(y).backward();
  CHECK(distance(x.grad(), neg(y.detach())) == 0);
}
