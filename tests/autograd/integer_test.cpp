// SPDX-License-Identifier: Apache-2.0
// True division, and what integers and masks can do.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::error_of;

namespace {

using Integers = std::vector<std::int64_t>;

Tensor integers(const Integers& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
Tensor mask(const std::vector<std::int64_t>& values) { return ne(integers(values), 0); }
Integers of_mask(const Tensor& x) { return cast(x, DType::i64).to_vector<std::int64_t>(); }

template <class T>
void check_division(DType dtype) {
  const Tensor x = cast(test::normal<float>({10000}, 5), dtype);
  const std::vector<T> before = x.to_vector<T>();
  for (const double by : {3.0, 10.0, 0.1}) {
    std::vector<T> expected;
    for (const T value : before) expected.push_back(value / static_cast<T>(by));
    CHECK((x / by).to_vector<T>() == expected);
    CHECK(div(x, full({}, by, dtype)).to_vector<T>() == expected);
  }
  std::vector<T> over;
  for (const T value : before) over.push_back(T(1) / value);
  CHECK((1.0 / x).to_vector<T>() == over);
}

}  // namespace

TEST_CASE("division by a number is division, to the last bit") {
  check_division<float>(DType::f32);
  check_division<double>(DType::f64);
  CHECK((full({}, 3, DType::f64) / 10.0).item<double>() == 0.3);
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 5}, {3});
  for (const DType narrow : {DType::f16, DType::bf16}) {
    CHECK(cast(cast(x, narrow) / 3.0, DType::f32).to_vector<float>() ==
          cast(cast(x / 3.0, narrow), DType::f32).to_vector<float>());
  }
}

TEST_CASE("integers divide to f32") {
  CHECK((arange(3) / 2.0).to_vector<float>() == std::vector<float>{0, 0.5f, 1});
  CHECK((integers({7, -7}) / integers({2, 2})).to_vector<float>() ==
        std::vector<float>{3.5f, -3.5f});
  CHECK((6.0 / integers({4})).to_vector<float>() == std::vector<float>{1.5f});
  CHECK((mask({1, 0}) / 2.0).to_vector<float>() == std::vector<float>{0.5f, 0});
}

TEST_CASE(
    "running sums of integers and masks are i64, and a dimension that is not there is named") {
  CHECK(cumsum(cast(integers({100, 100, 100}), DType::u8), 0).to_vector<std::int64_t>() ==
        Integers{100, 200, 300});
  CHECK(cumsum(mask({1, 0, 1, 1}), -1).to_vector<std::int64_t>() == Integers{1, 1, 2, 3});
  CHECK(error_of([] { cumsum(integers({1}), 1); }).find("cumsum: dimension 1 of shape [1]") !=
        std::string::npos);
}

TEST_CASE("abs, neg, clamp and pow of integers") {
  const Tensor x = integers({-3, 0, 5});
  CHECK(abs(x).to_vector<std::int64_t>() == Integers{3, 0, 5});
  CHECK(neg(x).to_vector<std::int64_t>() == Integers{3, 0, -5});
  CHECK(clamp(x, -1, 2).to_vector<std::int64_t>() == Integers{-1, 0, 2});
  CHECK(clamp(x, 1).to_vector<std::int64_t>() == Integers{1, 1, 5});
  CHECK(clamp(x, 4, 1).to_vector<std::int64_t>() == Integers{1, 1, 1});
  // Neighbours that f32 does not tell apart.
  const std::int64_t large = (std::int64_t{1} << 25) + 1;
  CHECK(clamp(integers({large - 1, large + 1}), static_cast<double>(large))
            .to_vector<std::int64_t>() == Integers{large, large + 1});
  CHECK(pow(x, 3).to_vector<std::int64_t>() == Integers{-27, 0, 125});
  CHECK(pow(x, 0).to_vector<std::int64_t>() == Integers{1, 1, 1});
  CHECK(pow(integers({3}), 39).to_vector<std::int64_t>() == Integers{4052555153018976267});
  CHECK(pow(integers({4}), 0.5).to_vector<float>() == std::vector<float>{2});
  CHECK(abs(cast(integers({200}), DType::u8)).to_vector<std::uint8_t>()[0] == 200);
  CHECK(abs(cast(x, DType::i32)).to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 0, 5});
  CHECK(error_of([&] { pow(x, -1); }).find("exponent in [0, 64]") != std::string::npos);
  CHECK(error_of([&] { clamp(x, 0.5); }).find("0.5 is not a value of i64") != std::string::npos);
}

TEST_CASE("masks have and, or, exclusive or and not") {
  const Tensor a = mask({0, 0, 1, 1}), b = mask({0, 1, 0, 1});
  CHECK(of_mask(a & b) == Integers{0, 0, 0, 1});
  CHECK(of_mask(a | b) == Integers{0, 1, 1, 1});
  CHECK(of_mask(a ^ b) == Integers{0, 1, 1, 0});
  CHECK(of_mask(~a) == Integers{1, 1, 0, 0});
  CHECK(of_mask(a * b) == Integers{0, 0, 0, 1});
  CHECK(of_mask(a + b) == Integers{0, 1, 1, 1});
  CHECK((a & b).dtype() == DType::boolean);
  // Numbers count as whether they differ from 0, and operands broadcast.
  const Tensor x = Tensor::from(std::vector<float>{-2, 0}, {2, 1});
  CHECK(of_mask(logical_and(x, integers({3, 0}))) == Integers{1, 0, 0, 0});
  CHECK(of_mask(logical_or(x, integers({3, 0}))) == Integers{1, 1, 1, 0});
  CHECK(of_mask(logical_xor(x, integers({3, 0}))) == Integers{0, 1, 1, 0});
  CHECK(of_mask(logical_not(x)) == Integers{0, 1});
  CHECK(error_of([&] { x& x; }) ==
        "&: expected a mask (bool), got f32 [2, 1]; compare first, or take logical_and, "
        "logical_or, logical_not");
  CHECK(error_of([&] { neg(a); }).find("logical_not") != std::string::npos);
}

TEST_CASE("what masks cannot do names the way out") {
  const Tensor m = mask({1, 0, 1});
  for (const auto& error :
       {error_of([&] { m - m; }), error_of([&] { m - 1; }), error_of([&] { m - integers({1}); })}) {
    CHECK(error.find("a ^ b (logical_xor)") != std::string::npos);
  }
  CHECK(error_of([&] { 1 - m; }).find("its opposite is ~x") != std::string::npos);
  CHECK(error_of([&] { mean(m); }).find("got bool [3]; take it of cast(x, DType::f32)") !=
        std::string::npos);
}
