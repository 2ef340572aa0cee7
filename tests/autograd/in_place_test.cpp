// SPDX-License-Identifier: Apache-2.0
// Every line of core/in_place.def and core/writes.def: the form in place is the function, whether
// or not it is recorded.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

#define IN_PLACE(name, parameters, arguments) +1
constexpr std::size_t lines = 0
#include <peal/autograd/core/in_place.def>
    ;
#undef IN_PLACE

struct Row {
  const char* call;
  Tensor of;
  std::function<Tensor(const Tensor&)> function, in_place, method, of_part;
};

std::vector<Row> all_rows() {
  const Tensor x = normal<double>({3, 4}, 1), y = normal<double>({3, 4}, 2);
  const Tensor positive = abs(y) + 0.5, small = tanh(x) * 0.9, mask = y < 0;
  const Tensor low = x - 0.25, high = y + 0.5;
  const Tensor whole = randint(0, 9, {3, 4}), other = randint(0, 9, {3, 4});
  std::vector<Row> rows;
#define ROW(name, of, ...)                                                                        \
  rows.push_back({#name, of, [=](const Tensor& t) { return name(t __VA_OPT__(, ) __VA_ARGS__); }, \
                  [=](const Tensor& t) { return name##_(t __VA_OPT__(, ) __VA_ARGS__); },         \
                  [=](const Tensor& t) { return t.name##_(__VA_ARGS__); },                        \
                  [=](const Tensor& t) {                                                          \
                    t[Ellipsis].name##_(__VA_ARGS__);                                             \
                    return t;                                                                     \
                  }});
  ROW(abs, x)
  ROW(exp, x)
  ROW(exp2, x)
  ROW(expm1, x)
  ROW(log, positive)
  ROW(log1p, positive)
  ROW(log2, positive)
  ROW(log10, positive)
  ROW(sqrt, positive)
  ROW(rsqrt, positive)
  ROW(reciprocal, x)
  ROW(square, x)
  ROW(pow, x, 2)
  ROW(sin, x)
  ROW(cos, x)
  ROW(tan, x)
  ROW(asin, small)
  ROW(acos, small)
  ROW(atan, x)
  ROW(sinh, x)
  ROW(cosh, x)
  ROW(asinh, x)
  ROW(acosh, positive + 1)
  ROW(atanh, small)
  ROW(sinc, x)
  ROW(deg2rad, x)
  ROW(rad2deg, x)
  ROW(erf, x)
  ROW(erfc, x)
  ROW(erfinv, small)
  ROW(lgamma, positive)
  ROW(digamma, positive)
  ROW(logit, sigmoid(x))
  ROW(floor, x)
  ROW(ceil, x)
  ROW(trunc, x)
  ROW(round, x)
  ROW(round, x, 1)
  ROW(frac, x)
  ROW(sign, x)
  ROW(clamp, x, -0.5)
  ROW(clamp, x, -0.5, 0.5)
  ROW(clamp_min, x, -0.5)
  ROW(clamp_max, x, 0.5)
  ROW(relu, x)
  ROW(relu6, x)
  ROW(tanh, x)
  ROW(sigmoid, x)
  ROW(silu, x)
  ROW(mish, x)
  ROW(selu, x)
  ROW(celu, x, 0.5)
  ROW(elu, x, 0.5)
  ROW(leaky_relu, x, 0.25)
  ROW(threshold, x, 0, -1)
  ROW(hardtanh, x, -0.5, 0.5)
  ROW(hardsigmoid, x)
  ROW(hardswish, x)
  ROW(neg, x)
  ROW(eq, whole, other)
  ROW(eq, whole, 4)
  ROW(ne, whole, other)
  ROW(ne, whole, 4)
  ROW(lt, whole, other)
  ROW(lt, whole, 4)
  ROW(le, whole, other)
  ROW(le, whole, 4)
  ROW(gt, whole, other)
  ROW(gt, whole, 4)
  ROW(ge, whole, other)
  ROW(ge, whole, 4)
  ROW(logical_and, mask, mask)
  ROW(logical_or, mask, mask)
  ROW(logical_xor, mask, mask)
  ROW(logical_not, mask)
  ROW(clamp, x, low, high)
  ROW(clamp_min, x, low)
  ROW(clamp_max, x, high)
  ROW(pow, positive, y)
  ROW(floor_divide, x, positive)
  ROW(floor_divide, x, 2)
  ROW(remainder, x, positive)
  ROW(remainder, x, 2)
  ROW(fmod, x, positive)
  ROW(fmod, x, 2)
  ROW(atan2, x, positive)
  ROW(hypot, x, positive)
  ROW(xlogy, x, positive)
  ROW(bitwise_and, whole, other)
  ROW(bitwise_and, whole, 2)
  ROW(bitwise_or, whole, other)
  ROW(bitwise_or, whole, 2)
  ROW(bitwise_xor, whole, other)
  ROW(bitwise_xor, whole, 2)
  ROW(bitwise_not, whole)
  ROW(lerp, x, y, 0.25)
  ROW(lerp, x, y, positive)
  ROW(addcmul, x, x, y)
  ROW(addcmul, x, x, y, 3)
  ROW(addcdiv, x, x, positive)
  ROW(addcdiv, x, x, positive, 3)
  ROW(nan_to_num, x)
  ROW(cumsum, x, 1)
  ROW(cumprod, x, 1)
  ROW(tril, x)
  ROW(tril, x, 1)
  ROW(triu, x)
  ROW(triu, x, 1)
#undef ROW
  return rows;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("in place, x becomes what the function gives, for all who share its elements") {
  const std::vector<Row> rows = all_rows();
  CHECK(rows.size() == lines);
  for (const Row& row : rows) {
    CAPTURE(row.call);
    for (const auto& in_place : {row.in_place, row.method, row.of_part}) {
      const Tensor to = row.of.clone(), shares = to.detach();
      const Tensor got = in_place(to);
      CHECK(got.same_as(to));
      CHECK(to.dtype() == row.of.dtype());
      CHECK(distance(shares, row.function(row.of)) == 0);
    }
  }
}

TEST_CASE("recorded in place: the function's gradients, of what x was before") {
  for (const Row& row : all_rows()) {
    if (!is_floating(row.of.dtype())) continue;
    CAPTURE(row.call);
    const auto gradient = [&](const auto& f) {
      const Tensor w = row.of.detach().clone().set_requires_grad();
      const Tensor x = w * 1, before = x * x;
      const Tensor y = f(x);
      (sum(y * y) + sum(before)).backward();
      return w.grad();
    };
    CHECK(distance(gradient(row.in_place), gradient(row.function)) == 0);
  }
}

TEST_CASE("of a temporary, the result has the values") {
  const Tensor x = normal<float>({2, 3}, 1);
  const Tensor y = relu_(x * 2);
  CHECK(equal(y, relu(x * 2)));
  const Tensor whole = x.clone();
  const Tensor part = clamp_(whole.rows(0, 1), 0, 0);  // shares the elements of whole
  CHECK(equal(whole.rows(0, 1), zeros({1, 3})));
  CHECK(equal(whole.rows(1, 2), x.rows(1, 2)));
  CHECK(part.storage() == whole.storage());
}

TEST_CASE("operators by name, and what does not fit") {
  const Tensor x = ones({2});
  const Tensor n = Tensor::zeros({2}, DType::i64), w = ones({2}).set_requires_grad();
  div_(mul_(sub_(sub_(x, 4), ones({2})), full({2}, 3.)), 2);
  CHECK(doubles(x) == std::vector<double>{-6, -6});
  CHECK(has(error_of([&] { exp_(n); }), "exp_: the result is f32, and is written into i64"));
  CHECK(has(error_of([&] { lerp_(x, ones({3, 2}), .5); }), "lerp_: the result has shape [3, 2]"));
  CHECK(has(error_of([&] { clamp_(w, 0, 1); }),
            "clamp_: a leaf of shape [2] that requires a gradient would be written in place"));
  const NoGrad guard;
  clamp_(w, 0, .5);
  CHECK(doubles(w) == std::vector<double>{.5, .5});
}

namespace {

#define WRITE_ALL(name, parameters, arguments) +1
#define WRITE_SOME WRITE_ALL
constexpr std::size_t writes = 0
#include <peal/autograd/core/writes.def>
    ;
#undef WRITE_ALL
#undef WRITE_SOME

struct Write {
  const char* call;
  std::function<void(const Tensor&)> function, method, of_part, of_temporary;
  bool recorded;  // where it is, by the function
};

std::vector<Write> all_writes() {
  const Tensor mask = normal<double>({3, 4}, 2) < 0, values = normal<double>({3, 4}, 3);
  const Tensor index = argsort(normal<double>({3, 4}, 6), 0), row = tensor({2});
  const Tensor one = normal<double>({1, 4}, 4);
  std::vector<Write> rows;
#define ROW(name, recorded, ...)                                                             \
  rows.push_back({#name, [=](const Tensor& t) { peal::name(t __VA_OPT__(, ) __VA_ARGS__); }, \
                  [=](const Tensor& t) {                                                     \
                    const Tensor got = t.name(__VA_ARGS__);                                  \
                    CHECK(got.same_as(t));                                                   \
                  },                                                                         \
                  [=](const Tensor& t) { t[Ellipsis].name(__VA_ARGS__); },                   \
                  [=](const Tensor& t) {                                                     \
                    const Tensor got = t.detach().name(__VA_ARGS__);                         \
                    CHECK(equal(got, t));                                                    \
                  },                                                                         \
                  recorded});
  ROW(fill_, false, 2)
  ROW(uniform_, false)
  ROW(uniform_, false, -1, 1)
  ROW(normal_, false)
  ROW(normal_, false, 1, 0.5)
  ROW(bernoulli_, false)
  ROW(bernoulli_, false, 0.25)
  ROW(exponential_, false)
  ROW(exponential_, false, 2)
  ROW(random_, false, -3, 9)
  ROW(masked_fill_, true, mask, 2)
  ROW(masked_fill_, true, mask, tensor(2.).to(DType::f64))
  ROW(masked_scatter_, true, mask, values)
  ROW(scatter_, true, 0, index, values)
  ROW(scatter_, true, 0, index, 2)
  ROW(scatter_add_, true, 0, index, values)
  ROW(index_add_, true, 0, row, one)
  ROW(index_copy_, true, 0, row, one)
  ROW(index_fill_, true, 0, row, 2)
  ROW(fill_diagonal_, true, 2)
  ROW(fill_diagonal_, true, 2, true)
#undef ROW
  return rows;
}

}  // namespace

TEST_CASE("methods that overwrite are their functions, of a tensor, a part and what shares it") {
  const std::vector<Write> rows = all_writes();
  CHECK(rows.size() + 3 == writes);  // and, of random numbers, those below
  const Tensor before = normal<double>({3, 4}, 1);
  const auto after = [&](const auto& write) {
    manual_seed(5);
    const Tensor x = before.clone();
    write(x);
    return x;
  };
  for (const Write& row : rows) {
    CAPTURE(row.call);
    const Tensor expected = after(row.function);
    CHECK(!equal(expected, before));
    CHECK(equal(after(row.method), expected));
    CHECK(equal(after(row.of_part), expected));
    CHECK(equal(after(row.of_temporary), expected));
  }
  Generator one(3), two(3);
  const Tensor x = empty({100}), y = empty({100});
  uniform_(x, -1, 1, one);
  y.uniform_(-1, 1, two);
  CHECK(equal(x, y));
  normal_(x, 2, 3, one);
  y.normal_(2, 3, two);
  CHECK(equal(x, y));
  const Tensor n = Tensor::zeros({1000}, DType::i64).random_(6);
  CHECK(min(n).item<std::int64_t>() == 0);
  CHECK(max(n).item<std::int64_t>() == 5);
  CHECK(has(error_of([] { empty({2}, DType::u8).random_(256 + 1); }), "random_: 256 is not a"));
}

TEST_CASE("random_ draws from ranges as wide as i64") {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         most = std::numeric_limits<std::int64_t>::max(), quarter = most / 2;
  const Tensor n = Tensor::zeros({4000}, DType::i64);
  const auto above = [&](std::int64_t bound) {
    std::int64_t count = 0;
    for (const std::int64_t each : n.to_vector<std::int64_t>()) count += each > bound;
    return count;
  };
  n.random_(most);
  CHECK(above(-1) == 4000);
  CHECK(std::abs(above(quarter) - 2000) < 200);
  n.random_(least, most);
  CHECK(std::abs(above(quarter) - 1000) < 200);
  CHECK(std::abs(above(0) - 2000) < 200);
  CHECK(std::abs(above(-quarter) - 3000) < 200);
  n.random_(most - 2, most);
  CHECK(above(most - 3) == 4000);
  CHECK(has(error_of([&] { n.random_(3, 3); }), "random_: expected low < high, got [3, 3)"));
  CHECK(has(error_of([&] { n.random_(least); }), "random_: expected low < high"));
  CHECK(has(error_of([] { empty({2}, DType::u8).random_(-1, 2); }), "random_: -1 is not a value"));
}

TEST_CASE("what overwrites a result is recorded right, or refused") {
  for (const Write& row : all_writes()) {
    CAPTURE(row.call);
    const auto gradient = [&](const auto& write) {
      manual_seed(5);
      const Tensor w = normal<double>({3, 4}, 1).set_requires_grad();
      const Tensor x = w * 3;
      write(x);
      sum(x * x).backward();
      return w.grad();
    };
    // A part that is overwritten whole is cut off.
    const Tensor of_part = gradient(row.of_part);
    if (row.recorded) {
      CHECK(equal(gradient(row.method), gradient(row.function)));
      CHECK(equal(of_part, gradient(row.function)));
    } else {
      CHECK(
          has(error_of([&] { gradient(row.method); }), "would be written in place, which is not"));
      CHECK(equal(of_part, zeros_like(of_part)));
    }
  }
}

TEST_CASE("add_ and sub_ of so much of another: recorded, cast and stretched as +=") {
  const Tensor x = normal<float>({3, 4}, 1), y = normal<float>({3, 4}, 2);
  Tensor to = x.clone();
  const Tensor shares = to.detach();
  CHECK(to.add_(y, 0.5).same_as(to));
  CHECK(distance(shares, x + y * 0.5) < 1e-6);
  to.sub_(y, 0.5);
  CHECK(distance(shares, x) < 1e-6);
  to.add_(y[0], -2);  // stretched
  CHECK(distance(shares, x - y[0] * 2) < 1e-6);
  const Tensor n = tensor({1, 2});
  n.add_(tensor({10, 20}), 3);
  CHECK(equal(n, tensor({31, 62})));
  CHECK(has(error_of([&] { n.add_(tensor({1, 1}), 0.5); }), "add_: the result is f32"));
  const auto gradients = [&](const auto& write) {
    const Tensor w = x.clone().set_requires_grad(), v = y.clone().set_requires_grad();
    const Tensor z = w * w;
    write(z, v);
    sum(z * z).backward();
    return cat({w.grad(), v.grad()});
  };
  CHECK(distance(gradients([](const Tensor& a, const Tensor& b) { a.sub_(b, 3); }),
                 gradients([](const Tensor& a, const Tensor& b) { a -= b * 3; })) == 0);
  CHECK(distance(gradients([](const Tensor& a, const Tensor& b) { a[1].add_(b[2], 3); }),
                 gradients([](const Tensor& a, const Tensor& b) { a[1] += b[2] * 3; })) == 0);
  const Tensor w = ones({2}).set_requires_grad();
  CHECK(has(error_of([&] { w.add_(ones({2}), 2); }), "add_: a leaf of shape [2] that requires"));
  w.detach().add_(ones({2}), 2);  // what an optimizer writes
  CHECK(doubles(w) == std::vector<double>{3, 3});
}

TEST_CASE("methods return what they write of a temporary") {
  const Tensor x = normal<float>({3, 4}, 1), before = x.clone();
  CHECK(doubles(empty({2}).fill_(3)) == std::vector<double>{3, 3});
  CHECK(equal(zeros({3, 4}).add_(x, 2).mul_(x), x * 2 * x));
  CHECK(equal((x * 1).clamp_(0, 1), clamp(x, 0, 1)));
  x.rows(0, 1).fill_(7);
  CHECK(doubles(x[0]) == std::vector<double>(4, 7));
  x.copy_(before);
  CHECK(equal(relu(x.select(1, 0)).mul_(2), relu(x.select(1, 0)) * 2));  // in the copy's memory
  // What operations make in another order is their own.
  CHECK(equal(softmax(x, 0).mul_(2), softmax(x, 0) * 2));
  CHECK(equal(log_softmax(x, 0).mul_(2), log_softmax(x, 0) * 2));
  CHECK(equal(sort(x, 0).values.mul_(2), sort(x, 0).values * 2));
  CHECK(equal(einsum("ijk->ki", {x.reshape({2, 3, 2})}).mul_(2),
              einsum("ijk->ki", {x.reshape({2, 3, 2})}) * 2));
  CHECK(equal(kthvalue(x, 1, 0).values.mul_(2), kthvalue(x, 1, 0).values * 2));
  CHECK(equal(pad(x, {-1, -1}).mul_(2), pad(x, {-1, -1}) * 2));
  const Tensor f64 = cast(x, DType::f64);
  CHECK(equal(linalg::qr(f64).Q.mul_(2), linalg::qr(f64).Q * 2));
  CHECK(equal(nonzero(x > 0).mul_(2), nonzero(x > 0) * 2));
  CHECK(equal(einsum("ij,kj->ki", {x, x}).mul_(2), einsum("ij,kj->ki", {x, x}) * 2));
  CHECK(equal(pixel_shuffle(x.reshape({1, 4, 1, 3}), 2).mul_(2),
              pixel_shuffle(x.reshape({1, 4, 1, 3}), 2) * 2));
  CHECK(equal(x, before));
  x[{Slice(), 0}].fill_(2);
  CHECK(doubles(x.select(1, 0)) == std::vector<double>(3, 2));
}

TEST_CASE("new tensors of a tensor's type and device") {
  const Tensor n = tensor({1, 2});
  CHECK(equal(n.new_zeros({2, 2}), Tensor::zeros({2, 2}, DType::i64)));
  CHECK(equal(n.new_ones({3}), tensor({1, 1, 1})));
  CHECK(equal(n.new_full({2}, 7), tensor({7, 7})));
  CHECK(n.new_empty({4}).dtype() == DType::i64);
  CHECK(equal(ones({2}).type_as(n), tensor({1, 1})));
  CHECK(n.cpu().same_as(n));
  CHECK(equal(n.new_full({2}, .5, DType::f64), full({2}, .5, DType::f64)));
  CHECK(has(error_of([&] { n.new_full({2}, .5); }), "0.5 is not a value of i64"));
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  n.fill_(large);
  CHECK(n.to_vector<std::int64_t>() == std::vector<std::int64_t>{large, large});
}

TEST_CASE("what is added may overlap what it is added to") {
  const Tensor x = arange(50, DType::f64), before = x.clone();
  add_(x.rows(1, 50), x.rows(0, 49), 2);
  CHECK(equal(x.rows(1, 50), before.rows(1, 50) + before.rows(0, 49) * 2));
}
