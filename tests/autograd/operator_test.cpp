// SPDX-License-Identifier: Apache-2.0
// Operators of tensors and numbers: their types, truth, comparisons, and writing in place.
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

using Doubles = std::vector<double>;

Tensor of(const std::vector<double>& values, DType dtype = DType::f32) {
  return cast(Tensor::from(values, {static_cast<std::int64_t>(values.size())}), dtype);
}
Tensor leaf(const std::vector<double>& values) {
  return of(values, DType::f64).set_requires_grad();
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a number keeps its category, and integers all their digits") {
  const Tensor i = of({1, 2}, DType::i64), h = of({1, 2}, DType::f16), m = eq(i, 1);
  CHECK(concat((i * 2).dtype()) == "i64");
  CHECK(concat((i * 2.0).dtype()) == "f32");
  CHECK(concat((i / 2).dtype()) == "f32");
  CHECK(concat((2 - i).dtype()) == "i64");
  CHECK(concat((h * 2.0).dtype()) == "f16");
  CHECK(concat((m + 1).dtype()) == "i64");
  CHECK(concat((m * true).dtype()) == "bool");
  CHECK(concat((m * 0.5).dtype()) == "f32");
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const Tensor x = Tensor::from(std::vector<std::int64_t>{large, large - 1}, {2});
  CHECK((x + 0).to_vector<std::int64_t>()[0] == large);
  CHECK((Tensor::zeros({1}, DType::i64) + large).item<std::int64_t>() == large);
  CHECK((Tensor::zeros({1}, DType::i64) - large).item<std::int64_t>() == -large);
  CHECK((large - Tensor::zeros({1}, DType::i64)).item<std::int64_t>() == large);
  CHECK(doubles(x == large) == Doubles{1, 0});
  CHECK(has(error_of([] { Scalar(std::uint64_t{1} << 63); }), "past the largest i64"));
}

TEST_CASE("small integer types wrap, and a number that they do not hold is an error") {
  const Tensor x = of({0, 5}, DType::u8);
  CHECK(doubles(x - 1) == Doubles{255, 4});
  CHECK(doubles(3 - x) == Doubles{3, 254});
  CHECK(doubles(2.5 - x) == Doubles{2.5, -2.5});
  CHECK(doubles(of({-100}, DType::i8) - 100) == Doubles{56});
  CHECK(has(error_of([&] { x + 300; }), "add: 300 is not a value of u8"));
  CHECK(has(error_of([&] { gt(x, 300); }), "gt: 300 is not a value of u8"));
  CHECK(has(error_of([&] { x + 256; }), "add: 256 is not a value of u8"));
  CHECK(has(error_of([&] { cast(x, DType::i8) + 128; }), "add: 128 is not a value of i8"));
}

TEST_CASE("operands of several types are promoted, with their gradients") {
  const Tensor narrow = of({1, 2}, DType::f16).set_requires_grad();
  const Tensor wide = of({3, 4}, DType::f64).set_requires_grad();
  const Tensor y = narrow * wide;
  CHECK(concat(y.dtype()) == "f64");
  sum(y).backward();
  CHECK(concat(narrow.grad().dtype()) == "f16");
  CHECK(doubles(narrow.grad()) == Doubles{3, 4});
  CHECK(doubles(wide.grad()) == Doubles{1, 2});
  // 0-dim tensors count less than those with dimensions, unless their category is higher.
  CHECK(concat((narrow + full({}, 1, DType::f64)).dtype()) == "f16");
  CHECK(concat((of({1}, DType::i32) + full({}, 1, DType::i64)).dtype()) == "i32");
  CHECK(concat((of({1}, DType::i32) + full({}, 1, DType::f16)).dtype()) == "f16");
  CHECK(concat(result_type(of({1}, DType::u8), of({1}, DType::i8))) == "i32");
  CHECK(doubles(cat({of({1}, DType::i64), of({0.5})})) == Doubles{1, 0.5});
  CHECK(doubles(where(of({1, 0}) > 0.5, of({7, 7}, DType::i64), 0.5)) == Doubles{7, 0.5});
  CHECK(doubles(where(of({1, 0}) > 0.5, 1, 0)) == Doubles{1, 0});
  CHECK(doubles(where(of({1, 0}) > 0.5, -1.5, of({2, 3}))) == Doubles{-1.5, 3});
  CHECK(doubles(of({1, 2, 3}, DType::i64) > 1.5) == Doubles{0, 1, 1});
}

TEST_CASE("comparisons as operators, with numbers on either side") {
  const Tensor x = of({1, 2, 3}), y = of({3, 2, 1});
  CHECK(doubles(x == y) == Doubles{0, 1, 0});
  CHECK(doubles(x != y) == Doubles{1, 0, 1});
  CHECK(doubles(x < y) == Doubles{1, 0, 0});
  CHECK(doubles(x <= 2) == Doubles{1, 1, 0});
  CHECK(doubles(x > 2) == Doubles{0, 0, 1});
  CHECK(doubles(x >= y) == Doubles{0, 1, 1});
  CHECK(doubles(2 == x) == Doubles{0, 1, 0});
  CHECK(doubles(2 != x) == Doubles{1, 0, 1});
  CHECK(doubles(2 < x) == Doubles{0, 0, 1});
  CHECK(doubles(2 <= x) == Doubles{0, 1, 1});
  CHECK(doubles(2 > x) == Doubles{1, 0, 0});
  CHECK(doubles(2.5 >= x) == Doubles{1, 1, 0});
  CHECK(doubles((x > 1) & (x < 3)) == Doubles{0, 1, 0});
}

TEST_CASE("truth is that of one element") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64,
                            DType::u8, DType::i8, DType::boolean}) {
    CHECK(static_cast<bool>(full({}, 1, dtype)));
    CHECK(!full({1, 1}, 0, dtype));
  }
  CHECK(static_cast<bool>(full({}, 0.5)));
  CHECK(static_cast<bool>(full({}, NAN)));
  if (sum(of({1, 2})) == 4) FAIL("1 + 2 is not 4");
  CHECK(has(error_of([] { static_cast<bool>(of({1, 1})); }), "a tensor of shape [2]"));
  CHECK(has(error_of([] { static_cast<bool>(of({})); }), "a tensor of shape [0]"));
  CHECK(has(error_of([] { static_cast<bool>(Tensor()); }), "ask x.defined()"));
}

TEST_CASE("writing in place without gradients reaches all who share the elements") {
  const Tensor x = of({1, 2, 3, 4}), same = x;
  const Tensor grid = reshape(x, {2, 2});
  const auto version = x.storage()->version();
  x += of({1});
  CHECK(x.storage()->version() > version);
  x *= 2;
  x -= of({1, 1, 1, 1});
  x /= 1.5;
  CHECK(distance(x, of({2, 10. / 3, 14. / 3, 6})) < 1e-6);
  CHECK(doubles(grid) == doubles(x));
  CHECK(doubles(same) == doubles(x));
  x.rows(0, 1) += 1;
  CHECK(doubles(x)[0] == doctest::Approx(3));
  // Elements that overlap are read before they are written.
  const Tensor line = of({1, 2, 3, 4, 5, 6, 7, 8, 9});
  line.rows(1, 9) += line.rows(0, 8);
  CHECK(doubles(line) == Doubles{1, 3, 5, 7, 9, 11, 13, 15, 17});
  const Tensor whole = of({7, 8}, DType::i64);
  whole += 1;
  whole *= of({2, 3}, DType::i32);
  CHECK(doubles(whole) == Doubles{16, 27});
  const Tensor half = of({1, 2}, DType::f16);
  half += of({0.5, 0.5}, DType::f64);
  CHECK(concat(half.dtype()) == "f16");
  CHECK(doubles(half) == Doubles{1.5, 2.5});
}

TEST_CASE("what is written in place must fit") {
  const Tensor i = of({1, 2}, DType::i64), x = of({1, 2});
  CHECK(error_of([&] { i += 0.5; }) ==
        "+=: the result is f32, and is written into i64; cast an operand, or compute out of place");
  CHECK(has(error_of([&] { i /= 2; }), "/=: the result is f32"));
  const Tensor m = x > 1;
  CHECK(has(error_of([&] { m += 1; }), "written into bool"));
  CHECK(has(error_of([&] { x += of({1, 2, 3}); }), "do not broadcast"));
  CHECK(has(error_of([&] { x += Tensor::zeros({3, 1}); }), "into shape [2]"));
  CHECK(has(error_of([&] { of({1}) += 1; }), "a temporary of shape [1]"));
  CHECK(has(error_of([&] {
              Tensor none;
              none += 1;
            }),
            "before it was given a value"));
}

TEST_CASE("a leaf that requires a gradient is written under NoGrad only") {
  const Tensor w = leaf({1, 2});
  CHECK(has(error_of([&] { w += 1; }), "+=: a leaf of shape [2] that requires a gradient"));
  {
    const NoGrad guard;
    w += 1;
  }
  w.detach() *= 2;
  CHECK(doubles(w) == Doubles{4, 6});
  CHECK(w.is_leaf());
}

TEST_CASE("recorded writing: all handles see it, and backward has the values from before") {
  const Tensor w = leaf({2, 3}), y = w * 1, handle = y, shares = y.detach();
  const Tensor square = y * y;
  y *= w;  // w^2
  CHECK(doubles(handle) == Doubles{4, 9});
  CHECK(doubles(shares) == Doubles{2, 3});  // as in_place.h says
  y += 1;                                   // w^2 + 1
  y *= y;                                   // (w^2 + 1)^2
  const Tensor loss = sum(handle + square);
  loss.backward({}, true);
  // 4 w (w^2 + 1) + 2 w
  CHECK(doubles(w.grad()) == Doubles{44, 126});
  w.zero_grad();
  loss.backward();
  CHECK(doubles(w.grad()) == Doubles{44, 126});
}

TEST_CASE("recorded writing under create_graph") {
  const Tensor w = leaf({2, 3});
  const Tensor y = w * 1;
  y *= y;
  y *= w;  // w^3
  const Tensor first = autograd::grad({sum(y)}, {w}, {.create_graph = true})[0];
  CHECK(doubles(first) == Doubles{12, 27});
  CHECK(doubles(autograd::grad({sum(first)}, {w})[0]) == Doubles{12, 18});
}

TEST_CASE("a part of a tensor is written through it, or not at all where the write is recorded") {
  const Tensor w = leaf({2, 3});
  for (const bool wants : {false, true}) {
    const Tensor x = wants ? w * 1 : Tensor::from(Doubles{1, 1}, {2});
    const Doubles before = doubles(x);
    const Tensor row = x.rows(0, 1), part = x[Slice(1, 2)];
    for (const Tensor& each : {row, part}) {
      CHECK(has(error_of([&] { each += sum(w); }), "is a part of another one"));
      CHECK(
          has(error_of([&] { each *= w.rows(0, 1); }), "*=: a tensor of shape [1] that is a part"));
      CHECK(has(error_of([&] { each[0] = sum(w); }), "is a part of another one"));
    }
    CHECK(doubles(x) == before);
    {
      const NoGrad guard;
      row += sum(w);
    }
    CHECK(doubles(x)[0] == before[0] + 5);
    x[Slice(0, 1)] += sum(w);
    CHECK(doubles(x)[0] == before[0] + 10);
    const Tensor copy = x.rows(1, 2).clone();
    copy += sum(w);  // it is nobody's part
    CHECK(doubles(copy)[0] == before[1] + 5);
  }
  // Nor is what has outlived the rest.
  const Tensor last = (w * 1).rows(1, 2);
  last += sum(w);
  CHECK(doubles(last)[0] == 8);
}

TEST_CASE("a buffer without a gradient takes one in") {
  const Tensor w = leaf({2, 3}), total = Tensor::zeros({2}, DType::f64);
  for (int i = 0; i < 3; ++i) total += w * w;
  CHECK(total.requires_grad());
  CHECK(!total.is_leaf());
  sum(total).backward();
  CHECK(doubles(w.grad()) == Doubles{12, 18});
  CHECK(
      has(error_of([&] { Tensor::zeros({2}, DType::f64).rows(0, 1) += sum(w); }), "would be lost"));
  const Tensor kept = Tensor::zeros({2}, DType::f64);
  CHECK(has(error_of([&] { kept.rows(0, 1) += sum(w); }), "would be lost with the temporary"));
}
