// SPDX-License-Identifier: Apache-2.0
// x[...]: what it reads, what it writes and who sees it, and its errors. Values and gradients are
// held against PyTorch by the table of ops (op_cases_indexing.cpp).
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

using Doubles = std::vector<double>;

Tensor counting(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return reshape(arange(n), shape);
}
Tensor integers(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("reading gives shapes and values of any type") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x[1].shape() == Shape{3, 4});
  CHECK(x[-1][0][3].item<std::int64_t>() == 15);
  CHECK(doubles(x[{1, Slice(), 2}]) == Doubles{14, 18, 22});
  CHECK(doubles(x[{Ellipsis, 0, Slice(None, None, 3)}]) == Doubles{0, 3, 12, 15});
  CHECK(x[None].shape() == Shape{1, 2, 3, 4});
  CHECK(x[{Slice(), None, 0, Ellipsis, None}].shape() == Shape{2, 1, 4, 1});
  CHECK(x[Slice(5, 9)].shape() == Shape{0, 3, 4});
  CHECK(x[{0, Slice(-2, -1)}].shape() == Shape{1, 4});
  const Tensor y = Tensor::zeros({2, 3, 4, 5});
  const Tensor i = integers({0, 1});
  CHECK(y[{Slice(), i, Slice(), None}].shape() == Shape{2, 2, 4, 1, 5});
  CHECK(y[{i, Slice(), i}].shape() == Shape{2, 3, 5});
  CHECK(y[{Slice(), i, i}].shape() == Shape{2, 2, 5});
  CHECK(y[{0, Slice(), i}].shape() == Shape{3, 2, 5});
  CHECK(y[{i, None, i}].shape() == Shape{2, 1, 4, 5});
  CHECK(doubles(x[{cast(i, DType::i8), 0, cast(integers({-1, 0}), DType::i32)}]) == Doubles{3, 12});
  CHECK(doubles(x[x > 20]) == Doubles{21, 22, 23});
  CHECK(x[x > 99].shape() == Shape{0});
  CHECK(doubles(x[{integers({1}).rows(0, 1)[0], 2}]) == Doubles{20, 21, 22, 23});
  CHECK(doubles((x > 3)[{0, Slice(0, 2), 0}]) == Doubles{0, 1});
  CHECK(doubles(x.index({1, 1, 1})) == Doubles{17});
}

TEST_CASE("a part is an operand, a condition, and has the methods of a tensor") {
  const Tensor x = counting({3, 2});
  CHECK(doubles(x[0] + x[1] * 2 - 1) == Doubles{3, 6});
  CHECK(doubles(x[2] == x[1] + 2) == Doubles{1, 1});
  if (x[0][1] != 1) FAIL("the second element is 1");
  CHECK(x[2].sum().item<std::int64_t>() == 9);
  CHECK(x[2].dim() == 1);
  CHECK(x[2].size(0) == 2);
  CHECK(x[2].dtype() == DType::i64);
  CHECK(concat(x[2]) == "tensor([4, 5])");
  CHECK(doubles(matmul(cast(x, DType::f32), cast(x[1], DType::f32).unsqueeze(1)))[1] == 13);
}

TEST_CASE("what is written into a part is in the tensor, and for whoever shares it") {
  const Tensor x = Tensor::zeros({3, 4}), handle = x, shared = reshape(x, {12});
  auto row = x[1];
  row += 1;
  row[2] = 5;
  x[{Slice(), 0}] = Tensor::from(std::vector<float>{7, 8, 9}, {3});
  x[2][Slice(1, 3)] *= 0;
  x[-1][-1] = true;
  const Doubles expected{7, 0, 0, 0, 8, 1, 5, 1, 9, 0, 0, 1};
  CHECK(doubles(x) == expected);
  CHECK(doubles(handle) == expected);
  CHECK(doubles(shared) == expected);
  const Tensor first = x[0];  // shares the elements, which lie in one piece
  first.zero_();
  CHECK(doubles(x[0]) == Doubles{0, 0, 0, 0});
  x[0] = x[1];
  CHECK(doubles(x[0]) == doubles(x[1]));
  x[Slice(1)] = x[Slice(None, 2)];  // overlapping: read first
  CHECK(doubles(x[2]) == doubles(x[0]));
  x[Ellipsis] = 3;
  CHECK(doubles(sum(x)) == Doubles{36});
  x.index_put_({0, 0}, 1).index_put_({1}, Tensor::zeros({4}));
  CHECK(doubles(sum(x)) == Doubles{22});
}

TEST_CASE("writing by masks and indices") {
  const Tensor x = counting({5});
  x[x > 2] = -1;
  CHECK(doubles(x) == Doubles{0, 1, 2, -1, -1});
  x[integers({0, 0, 4})] = integers({5, 6, 7});  // the last stays
  CHECK(doubles(x) == Doubles{6, 1, 2, -1, 7});
  x[integers({1, 1, 0})] += 1;  // once
  CHECK(doubles(x) == Doubles{7, 2, 2, -1, 7});
  x[x < 3] *= integers({1, 10, 100});
  CHECK(doubles(x) == Doubles{7, 2, 20, -100, 7});
  x[integers({})] = 9;
  CHECK(doubles(x)[0] == 7);
  const Tensor m = Tensor::zeros({3}, DType::boolean);
  m[1] = true;
  CHECK(doubles(m) == Doubles{0, 1, 0});
  const Tensor whole = counting({2});
  whole[0] = 2.75;  // cast, as in PyTorch
  CHECK(doubles(whole) == Doubles{2, 1});
}

TEST_CASE("writing is recorded") {
  const Tensor w = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
  const Tensor out = Tensor::zeros({2, 2}, DType::f64), handle = out;
  for (int i = 0; i < 2; ++i) out[i] = w * w * (i + 1);
  out[0][0] = 0;
  sum(handle).backward();
  CHECK(doubles(w.grad()) == Doubles{4, 12});
  CHECK(
      has(error_of([&] { w[0] = 1; }), "x[...] = y: a leaf of shape [2] that requires a gradient"));
  const NoGrad guard;
  w[0] = 5;
  CHECK(doubles(w) == Doubles{5, 2});
}

// A name for a part is not given to something else by =, as it would be in Python.
static_assert(!std::is_assignable_v<Indexed&, Tensor> && !std::is_assignable_v<Indexed&, Indexed&>);
static_assert(!std::is_assignable_v<decltype(std::declval<Tensor>().index({})), Tensor>);
static_assert(std::is_assignable_v<Indexed, Tensor> && std::is_assignable_v<Indexed, Indexed>);

TEST_CASE("what selects nothing still has a shape, and bytes are no mask") {
  const Tensor x = counting({3, 2});
  CHECK(has(error_of([&] { x[x > 99] = ones({7}); }), "[7]"));
  x[x > 99] = ones({0});
  x[integers({})] = 5;
  CHECK(doubles(x) == Doubles{0, 1, 2, 3, 4, 5});
  CHECK(has(error_of([&] { x[cast(integers({1, 0, 1}), DType::u8)].get(); }), "bool or to i64"));
}

TEST_CASE("what is written makes no array of the whole") {
  const Tensor x = Tensor::zeros({1024, 1024}), mask = Tensor::zeros({1024, 1024}, DType::boolean);
  const Tensor turned = Tensor::zeros({8, 1024, 128});
  const auto bytes_of = [](auto write) {
    cpu_reset_peak();
    const std::size_t before = cpu_allocator_statistics().in_use;
    write();
    return cpu_allocator_statistics().peak - before;
  };
  constexpr std::size_t little = 64 << 10;
  CHECK(bytes_of([&] { x[Ellipsis] = 1; }) < little);
  CHECK(bytes_of([&] { x[{Slice(2, 1000)}] = ones({1024}); }) < little);
  CHECK(bytes_of([&] { x[integers({3, 5, 3})] = 2; }) < little);
  CHECK(bytes_of([&] { x[{Slice(), integers({7})}] = 3; }) < little);
  CHECK(bytes_of([&] { turned[{0, Slice(), integers({7, 9})}] = 4; }) < 2 * little);
  CHECK(x[3][0].item<float>() == 2);
  CHECK(x[4][7].item<float>() == 3);
  CHECK(x[4][6].item<float>() == 1);
  CHECK(doubles(turned[{0, 1023, Slice(6, 10)}]) == Doubles{0, 4, 0, 4});
  CHECK(sum(turned).item<float>() == 8 * 1024);
}

TEST_CASE("true is no number to subtract in place") {
  const Tensor x = counting({3});
  CHECK(has(error_of([&] { x -= true; }), "-=: true and false are no numbers to subtract"));
  CHECK(has(error_of([&] { x[0] -= true; }), "true and false are no numbers to subtract"));
  x += true;
  CHECK(doubles(x) == Doubles{1, 2, 3});
}

TEST_CASE("values for one place add up where they accumulate") {
  const Tensor x = counting({2, 3});
  index_put_(x, {integers({1, 1, 0}), Slice(0, 2)}, integers({10, 20}), true);
  CHECK(doubles(x) == Doubles{10, 21, 2, 23, 44, 5});
  index_put_(x, {Slice(), integers({2, 2})}, integers({1}), true);
  CHECK(doubles(x) == Doubles{10, 21, 4, 23, 44, 7});
  index_put_(x, {0}, integers({1}), true);
  index_put_(x, {1}, integers({1}));
  CHECK(doubles(x) == Doubles{11, 22, 5, 1, 1, 1});
}

TEST_CASE("what x[...] cannot be is named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK(error_of([&] { x[2].get(); }) ==
        "x[...]: index 2 is outside of dimension 0 of shape [2, 3]");
  CHECK(has(error_of([&] {
              x[{0, -4}].get();
            }),
            "index -4 is outside of dimension 1 of shape [2, 3]"));
  CHECK(has(error_of([&] { x[{0, 0, 0}].get(); }), "3 indices for shape [2, 3]"));
  CHECK(has(error_of([&] { x[{Ellipsis, 0, Ellipsis}].get(); }), "at most one Ellipsis"));
  CHECK(
      has(error_of([&] { x[Slice(None, None, -1)].get(); }), "a step must be at least 1, got -1"));
  CHECK(has(error_of([&] {
              x[integers({0, 2})].get();
            }),
            "index 2 is outside of a dimension of 2"));
  CHECK(has(error_of([&] {
              x[{integers({0, 1}), integers({0, 1, 2})}].get();
            }),
            "do not broadcast"));
  CHECK(has(error_of([&] { x[Tensor::zeros({2})].get(); }),
            "expected integers or a mask (bool), got f32"));
  CHECK(has(error_of([&] { x[Tensor::zeros({3}, DType::boolean)].get(); }),
            "a mask of shape [3] at dimension 0 of shape [2, 3]"));
  CHECK(has(error_of([&] { x[0] = Tensor::zeros({2}); }),
            "a part of shape [3] cannot take values of shape [2]"));
  CHECK(has(error_of([&] { x[x > -1][0] = 1; }), "put all indices into one"));
  CHECK(has(error_of([&] { cast(x, DType::i64)[0] += 0.5; }), "the result is f32"));
  CHECK(has(error_of([] { Tensor()[0].get(); }), "before it was given a value"));
}

TEST_CASE("a part of a copy is read, and never written while the tensor lives") {
  const Tensor x = reshape(arange(0, 6), {2, 3}), before = x.clone(), turned = x.t();
  const Tensor column = x[{Slice(), 1}];
  for (const auto& write : std::vector<std::function<void()>>{
           [&] { x.t()[0] = 1; }, [&] { x.t()[0].mul_(2); }, [&] { x.select(1, 0)[0] = 5; },
           [&] {
             x.permute({1, 0})[{0}] += 1;
           },
           [&] { x.t()[x.t() > 2] = 0; },
           [&] {
             auto row = x.t()[0];
             row += 1;
           },
           [&] { x.t().unsqueeze(0)[0] = 1; }, [&] { turned[0] = 7; },
           [&] {
             x.t().index_put_({0}, tensor({1, 1}));
           },
           [&] { x.t().index_put_({0}, 1); },
           [&] {
             index_put_(turned, {tensor({0, 1})}, tensor({1, 1}), true);
           },
           [&] { column[0] = 1; }, [&] { column.mul_(2); }}) {
    CHECK(has(error_of(write), "that is a copy of another"));
  }
  // index() gives a const Tensor, whose methods write as those of one with a name.
  CHECK(has(error_of([&] { x.index({Slice(), 1}).mul_(2); }), "that is a copy of another"));
  CHECK(doubles(x) == doubles(before));
  CHECK(doubles(x.t()[0]) == Doubles{0, 3});
  CHECK(doubles(column) == Doubles{1, 4});
  const Tensor own = x.t().clone();
  own[0] = 7;
  CHECK(doubles(own[0]) == Doubles{7, 7});
  const Tensor chosen = x[tensor({1, 0})];  // a copy in PyTorch too
  chosen.mul_(2);
  CHECK(doubles(chosen[1]) == Doubles{0, 2, 4});
  x.reshape({3, 2})[0] = 8;  // shares storage
  relu(x)[0] = 9;            // no part of another
  CHECK(doubles(x) == Doubles{8, 8, 2, 3, 4, 5});
}

TEST_CASE("the largest of a bag may be NaN or -infinity, and is 0 of an empty one") {
  const Tensor weight = Tensor::from(Doubles{-INFINITY, NAN, -INFINITY, 1, 5, 2}, {3, 2});
  const Tensor bags =
      embedding_bag(integers({0, 1, 2}), weight, integers({0, 2, 2}), {.mode = BagMode::max});
  const Doubles found = doubles(bags);
  CHECK(found[0] == -INFINITY);
  CHECK(std::isnan(found[1]));
  CHECK(Doubles(found.begin() + 2, found.end()) == Doubles{0, 0, 5, 2});
}
