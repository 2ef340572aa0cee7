// SPDX-License-Identifier: Apache-2.0
// Order and counts: what PyTorch's older versions do otherwise, long rows, and errors. Values are
// held against PyTorch by values_order.cpp and op_cases_order.cpp.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

using Doubles = std::vector<double>;

TEST_CASE("each NaN is a value of its own") {
  const Unique all = unique(tensor({NAN, 1., NAN, 1.}));
  CHECK(doubles(all.counts) == Doubles{2, 1, 1});
  CHECK(doubles(all.inverse) == Doubles{1, 0, 2, 0});
}

TEST_CASE("slices that are equal are one, the first, and those with a NaN differ") {
  const Tensor x = tensor({{1., 0.}, {NAN, 2.}, {1., -0.}, {NAN, 2.}});
  const Unique all = unique(x, 0);
  CHECK(doubles(all.counts) == Doubles{2, 1, 1});
  CHECK(doubles(all.inverse) == Doubles{0, 1, 0, 2});
  CHECK(!std::signbit(doubles(all.values)[1]));
  // As many columns as leave one over again and again.
  for (const std::int64_t m : {1, 2, 3, 7, 11}) {
    manual_seed(static_cast<std::uint64_t>(m));
    const Tensor rows = randint(0, 2, {300, m});
    std::vector<std::vector<std::int64_t>> words;
    for (std::int64_t i = 0; i < 300; ++i) {
      words.push_back(rows.rows(i, i + 1).to_vector<std::int64_t>());
    }
    const Unique found = unique(rows, 0);
    CHECK(equal(index_select(found.values, 0, found.inverse), rows));
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::vector<std::int64_t> flat;
    for (const auto& word : words) flat.insert(flat.end(), word.begin(), word.end());
    CHECK(found.values.to_vector<std::int64_t>() == flat);
    CHECK(sum(found.counts).item<std::int64_t>() == 300);
  }
  CHECK(error_of([] {
          unique(zeros({2, 0}), 0);
        }) ==
        "unique: the slices along dimension 0 of shape [2, 0] have no elements, by which they "
        "could differ");
  CHECK(error_of([] { unique(zeros({2}), 1); }) == "unique: dimension 1 of shape [2]");
  CHECK(error_of([] { unique_consecutive(zeros({}), 0); }) ==
        "unique_consecutive: dimension 0 of shape []");
}

TEST_CASE("long rows are sorted, whole and in part, on several threads alike") {
  const Tensor x = normal<float>({3, 50000}, 1);
  const Extreme all = sort(x);
  for (std::int64_t row = 0; row < 3; ++row) {
    std::vector<float> expected = x.rows(row, row + 1).to_vector<float>();
    std::sort(expected.begin(), expected.end());
    CHECK(all.values.rows(row, row + 1).to_vector<float>() == expected);
  }
  CHECK(doubles(gather(x, 1, all.indices)) == doubles(all.values));
  CHECK(doubles(topk(x, 100, 1, false).indices) == doubles(slice(all.indices, 1, 0, 100)));
  // Of equal elements the first come first.
  const Tensor equal = zeros({20000});
  CHECK(doubles(argsort(equal)) == doubles(arange(20000)));
  CHECK(doubles(topk(equal, 50).indices) == doubles(arange(50)));
}

TEST_CASE("integers near each other and far apart, and f64, are sorted alike") {
  manual_seed(3);
  const std::int64_t far = std::int64_t{1} << 61;
  for (const Tensor& x : {randint(-5, 5, {4000}), randint(-far, far, {4000}),
                          randint(0, 100, {4000}, DType::i8), cast(randn({4000}), DType::f64)}) {
    std::vector<double> expected = doubles(x);
    std::sort(expected.begin(), expected.end());
    for (const std::int64_t k : {4000, 1000, 20}) {
      const Extreme first = topk(x, k, 0, false);
      const Doubles part(expected.begin(), expected.begin() + k);
      CHECK(doubles(first.values) == part);
      CHECK(doubles(gather(x, 0, first.indices)) == part);
      CHECK(doubles(first.indices) == doubles(sort(x).indices.rows(0, k)));
    }
  }
}

TEST_CASE("what has no order is named") {
  const Tensor x = zeros({2, 3});
  CHECK(error_of([&] { topk(x, 4); }) ==
        "topk: 4 of 3 elements along dimension -1 of shape [2, 3]");
  CHECK(error_of([&] { kthvalue(x, 0); }) == "kthvalue: the smallest is number 1, got 0");
  CHECK(error_of([&] { sort(x, 2); }) == "sort: dimension 2 of shape [2, 3]");
  CHECK(error_of([&] { median(zeros({0})); }) ==
        "median: no elements along dimension 0 of shape [0]");
  CHECK(error_of([&] { quantile(x, 1.5); }) == "quantile: expected q in [0, 1], got 1.5");
  CHECK(error_of([&] { bincount(tensor({1, -2})); }) == "bincount: -2 is negative");
  CHECK(error_of([&] { bincount(x); }) == "bincount: expected integers [n], got f32 [2, 3]");
  CHECK(error_of([&] { histc(x, 0); }).find("at least 1 bin") != std::string::npos);
  CHECK(error_of([&] {
          searchsorted(x, zeros({3, 1}));
        }) ==
        "searchsorted: sorted lines of shape [2, 3] do not fit values of shape [3, 1]: expected "
        "[n], or the same sizes but for the last");
}
