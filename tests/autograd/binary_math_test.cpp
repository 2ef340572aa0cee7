// SPDX-License-Identifier: Apache-2.0
// Functions of two elements: what they refuse, equal operands, and comparisons of whole tensors.
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/nearness.h>
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

using Doubles = std::vector<double>;
Tensor numbers(const Doubles& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
Tensor integers(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("equal operands share the gradient of maximum, and the first has that of fmax") {
  const Tensor a = numbers({1, 2, 3}).set_requires_grad(),
               b = numbers({2, 2, 2}).set_requires_grad();
  sum(max(a, b)).backward();
  CHECK(equal(max(a, b), maximum(a, b)));
  CHECK(equal(min(a, b), minimum(a, b)));
  CHECK(doubles(a.grad()) == Doubles{0, 0.5, 1});
  CHECK(doubles(b.grad()) == Doubles{1, 0.5, 0});
  a.zero_grad();
  b.zero_grad();
  sum(fmax(a, b)).backward();
  CHECK(doubles(a.grad()) == Doubles{0, 1, 1});
  CHECK(doubles(b.grad()) == Doubles{1, 0, 0});
}

TEST_CASE("integers over 0 are refused, and the most negative over -1 wraps") {
  const Tensor x = integers({7, -7}), zero = integers({1, 0});
  for (const auto& error : {error_of([&] { x % zero; }), error_of([&] { x % 0; })}) {
    CHECK(error ==
          "remainder: division of i64 [2] by 0, of which integers have no quotient; cast one to a "
          "floating type");
  }
  CHECK(error_of([&] { floor_divide(x, zero); }).find("floor_divide: division of i64") == 0);
  CHECK(std::isnan((cast(x, DType::f64) % 0).to_vector<double>()[0]));
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(floor_divide(integers({least}), -1).item<std::int64_t>() == least);
  CHECK((integers({least}) % -1).item<std::int64_t>() == 0);
  CHECK(pow(integers({1, -1, 2, -1}), integers({-3, -3, -1, -2})).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, -1, 0, 1});
  CHECK(bitwise_left_shift(integers({1, 1, 1}), integers({63, 64, -1})).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{least, 0, 0});
}

TEST_CASE("tensors as wholes: equal, and nearly") {
  const Tensor a = numbers({1, 2}), b = numbers({1, 2 + 1e-6}), none = numbers({NAN, 2});
  CHECK(equal(a, a.clone()));
  CHECK(!equal(a, b));
  CHECK(!equal(a, numbers({1, 2, 3})));
  CHECK(!equal(none, none));
  CHECK(allclose(a, b));
  CHECK(!allclose(a, b, 0, 1e-7));
  CHECK(!allclose(none, none));
  CHECK(allclose(none, none, 0, 0, true));
  CHECK(error_of([&] {
          equal(a, integers({1, 2}));
        }).find("equal: both operands must have one type") == 0);
  CHECK(error_of([&] { isclose(a, b, -1); }).find("tolerances of at least 0") != std::string::npos);
}

TEST_CASE("every function of two names itself where an operand was never given a value") {
  const Tensor x = ones({2}), none;
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>>{
           {"maximum", maximum},
           {"fmin", peal::fmin},
           {"pow", pow},
           {"remainder", remainder},
           {"floor_divide", floor_divide},
           {"atan2", peal::atan2},
           {"bitwise_and", bitwise_and}}) {
    const std::string expected =
        std::string(name) + ": a tensor was used before it was given a value";
    CHECK(error_of([&] { f(none, x); }) == expected);
    CHECK(error_of([&] { f(x, none); }) == expected);
  }
}
