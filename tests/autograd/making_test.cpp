// SPDX-License-Identifier: Apache-2.0
// Literals and their errors; random tensors: moments, ranges, generators, and that threads change
// nothing. Values are held against PyTorch by values_making.cpp.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

using Doubles = std::vector<double>;

double mean_of(const Tensor& x) { return mean(cast(x, DType::f64)).item<double>(); }
double deviation_of(const Tensor& x) {
  const Tensor wide = cast(x, DType::f64), away = wide - mean(wide);
  return std::sqrt(mean_of(away * away));
}

// Of counts that should be equal; it is near its degrees of freedom.
double chi_square(const Tensor& counts) {
  const double expected = mean_of(counts);
  double total = 0;
  for (const double count : doubles(counts)) total += (count - expected) * (count - expected);
  return total / expected;
}

}  // namespace

TEST_CASE("a ragged literal is an error that names the place") {
  CHECK(error_of([] {
          tensor({{1, 2}, {3}});
        }) == "tensor: expected a row of 2 at [1], as elsewhere, got one of 1");
  CHECK(error_of([] {
          tensor({{1, 2}, 3});
        }) == "tensor: expected a row of 2 at [1], as elsewhere, got the number 3");
  CHECK(error_of([] {
          tensor({{{1}, {2}}, {{3}, {}}});
        }) == "tensor: expected a row of 1 at [1][1], as elsewhere, got one of 0");
  CHECK(error_of([] {
          tensor({1, {2, 3}});
        }) == "tensor: expected a number at [1], as elsewhere, got a row of 2");
  CHECK(error_of([] { tensor({300}, DType::u8); }) == "tensor: 300 is not a value of u8");
}

TEST_CASE("what cannot be made is named") {
  CHECK(error_of([] { arange(3, 0, 1); }) == "arange: steps of 1 do not lead from 3 to 0");
  CHECK(error_of([] { arange(0, 1, 0); }) == "arange: steps of 0 do not lead from 0 to 1");
  CHECK(error_of([] { arange(-1); }) == "arange: a count must not be negative, got -1");
  CHECK(error_of([] { randint(3, 3, {2}); }) == "randint: expected low < high, got [3, 3)");
  CHECK(error_of([] {
          multinomial(tensor({0., 0.}), 1);
        }) ==
        "multinomial: 1 different indices are wanted of each row, and one has 0 of 2 weights above "
        "0");
  CHECK(error_of([] {
          multinomial(tensor({1., -1.}), 1);
        }) == "multinomial: a weight is negative, infinite or NaN");
  const Tensor whole = zeros({2}, DType::i64);
  CHECK(error_of([&] { uniform_(whole); }).find("floating") != std::string::npos);
}

TEST_CASE("random numbers have their moments and ranges") {
  manual_seed(7);
  const std::int64_t n = 40000;
  const Tensor u = rand({n});
  CHECK(std::abs(mean_of(u) - 0.5) < 0.01);
  CHECK(std::abs(deviation_of(u) - std::sqrt(1 / 12.0)) < 0.01);
  CHECK((min(u).item<float>() >= 0 && max(u).item<float>() < 1));
  const Tensor g = normal(3, 0.5, {n}, DType::f64);
  CHECK(std::abs(mean_of(g) - 3) < 0.02);
  CHECK(std::abs(deviation_of(g) - 0.5) < 0.02);
  const Tensor means = arange(3, DType::f32), shifted = normal(means, 0.001);
  for (int i = 0; i < 3; ++i)
    CHECK(std::abs(doubles(shifted)[static_cast<std::size_t>(i)] - i) < 0.1);
  const Tensor e = zeros({n});
  exponential_(e, 4);
  CHECK(std::abs(mean_of(e) - 0.25) < 0.01);
  CHECK(std::abs(deviation_of(e) - 0.25) < 0.01);
  CHECK(min(e).item<float>() >= 0);
  CHECK(std::abs(mean_of(bernoulli(full({n}, 0.3))) - 0.3) < 0.01);
  CHECK(mean_of(bernoulli(zeros({n}))) == 0);
  CHECK(mean_of(bernoulli(ones({n}))) == 1);
  const Tensor mask = zeros({n}, DType::boolean);
  bernoulli_(mask, 0.7);
  CHECK(std::abs(mean_of(mask) - 0.7) < 0.01);
}

TEST_CASE("integers are equally likely and in range") {
  manual_seed(8);
  const Tensor x = randint(-3, 4, {70000});
  CHECK(x.dtype() == DType::i64);
  CHECK(doubles(unique(x).values) == Doubles{-3, -2, -1, 0, 1, 2, 3});
  CHECK(chi_square(bincount(x + 3)) < 25);  // 6 degrees of freedom
  const std::int64_t far = std::int64_t{1} << 40;
  const Tensor wide = randint(far, {1000});
  CHECK((min(wide).item<std::int64_t>() >= 0 && max(wide).item<std::int64_t>() < far));
  CHECK(unique(wide).values.numel() > 990);  // more than 24 bits of them
  CHECK(randint(5, {3}, DType::u8).dtype() == DType::u8);
}

TEST_CASE("permutations hold each number once, and each is as likely") {
  manual_seed(9);
  CHECK(doubles(sort(randperm(1000)).values) == doubles(arange(1000)));
  CHECK(randperm(0).shape() == Shape{0});
  Tensors codes;
  for (int i = 0; i < 6000; ++i) codes.push_back(sum(randperm(3) * tensor({9, 3, 1})).reshape({1}));
  const Unique all = unique(cat(codes));
  CHECK(all.values.numel() == 6);
  CHECK(chi_square(all.counts) < 22);  // 5 degrees of freedom
}

TEST_CASE("multinomial draws by weight") {
  manual_seed(10);
  const Tensor weights = tensor({{1., 0., 3., 4.}, {2., 2., 2., 2.}});
  const Tensor with = multinomial(weights, 8000, true);
  CHECK(with.shape() == Shape{2, 8000});
  const Doubles first = doubles(bincount(with.rows(0, 1).reshape({8000}), {}, 4));
  CHECK(first[1] == 0);
  CHECK(std::abs(first[0] - 1000) < 120);
  CHECK(std::abs(first[2] - 3000) < 200);
  CHECK(std::abs(first[3] - 4000) < 200);
  CHECK(chi_square(bincount(with.rows(1, 2).reshape({8000}))) < 20);
  // Without replacement: each once, and the first as likely as its weight says.
  const Tensor row = weights.rows(0, 1).reshape({4});
  int of_last = 0;
  for (int i = 0; i < 2000; ++i) {
    const Doubles drawn = doubles(multinomial(row, 3));
    CHECK(std::set<double>(drawn.begin(), drawn.end()) == std::set<double>{0, 2, 3});
    of_last += drawn[0] == 3;
  }
  CHECK(std::abs(of_last - 1000) < 110);
}

TEST_CASE("gumbel_softmax draws classes by their shares, and hard ones have the soft gradient") {
  const Tensor shares = tensor({0.5, 0.125, 0.25, 0.125});
  const Tensor logits = expand(log(shares), {16000, 4}).clone().requires_grad_();
  Generator first{11, 0}, second{11, 0};
  const Tensor soft = gumbel_softmax(logits, 0.5, false, -1, first),
               hard = gumbel_softmax(logits, 0.5, true, -1, second);
  const Tensor times = sum(hard.detach(), {0}), expected = shares * 16000;
  CHECK(sum(square(times - expected) / expected).item<float>() < 16);  // 3 degrees of freedom
  CHECK(equal(argmax(soft, 1), argmax(hard, 1)));
  CHECK(equal(hard.detach(), cast(one_hot(argmax(soft, 1), 4), DType::f32)));
  CHECK(max(abs(sum(soft.detach(), {1}) - 1)).item<float>() < 1e-6f);
  // The colder, the nearer to the hard ones.
  Generator third{11, 0};
  CHECK(mean_of(abs(gumbel_softmax(logits, 0.01, false, -1, third) - hard)) < 0.02);
  const Tensor weights = randn({16000, 4});
  sum(soft * weights).backward();
  const Tensor wanted = logits.grad().clone();
  logits.zero_grad();
  sum(hard * weights).backward();
  CHECK(equal(logits.grad(), wanted));
  CHECK(all(isnan(gumbel_softmax(full({3, 2}, NAN), 1, true))).item<bool>());
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    CHECK(gumbel_softmax(ones({2, 3}, dtype)).dtype() == dtype);
  }
  CHECK(error_of([&] { gumbel_softmax(logits, 0); }) ==
        "gumbel_softmax: expected a tau above 0, got 0");
  CHECK(error_of([&] { gumbel_softmax(logits, 1, false, 2); }) ==
        "gumbel_softmax: dimension 2 of shape [16000, 4]");
  CHECK(error_of([] { gumbel_softmax(zeros({2}, DType::i64)); }) ==
        "gumbel_softmax: expected a floating type, got i64 [2]");
}

TEST_CASE("a generator that is named is the one that is drawn from") {
  manual_seed(1);
  Generator own{42, 0}, same{42, 0};
  const std::uint64_t before = context().generator.offset;
  const Tensor a = rand({5}, DType::f32, Device{}, own),
               b = randint(9, {5}, DType::i64, Device{}, own);
  CHECK(context().generator.offset == before);
  CHECK(doubles(rand({5}, DType::f32, Device{}, same)) == doubles(a));
  CHECK(doubles(randint(9, {5}, DType::i64, Device{}, same)) == doubles(b));
  manual_seed(42);
  CHECK(doubles(rand({5})) == doubles(a));
  const Tensor x = zeros({5});
  uniform_(x, 0, 1, same = Generator{42, 0});
  CHECK(doubles(x) == doubles(a));
}
