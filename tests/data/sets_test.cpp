// SPDX-License-Identifier: Apache-2.0
// Sets made of tensors and of other sets: rows, parts, parts by chance, and one behind the other.
#include <doctest/doctest.h>
#include <peal/data/concat_dataset.h>
#include <peal/data/subset.h>
#include <peal/data/tensor_dataset.h>
#include <peal/tests/errors.h>

#include "drawn.h"

#include <functional>
#include <set>
#include <utility>

using namespace peal::data;
using peal::Device;
using peal::DType;
using peal::Error;
using peal::Shape;
using peal::testing::check_has;
using peal::testing::error_of;

namespace {

std::shared_ptr<const TensorDataset> counted(std::int64_t n, std::int64_t from = 0) {
  Samples x = up_to(2 * n), y = up_to(n);
  for (std::int64_t& value : x) value += from;
  for (std::int64_t& value : y) value += from;
  return std::make_shared<TensorDataset>(
      Tensor::from(x, {n, 2}, Device{}), Tensor::from(y, {n}, Device{}),
      peal::NamedTensors{{"none", Tensor::zeros({n, 0}, DType::f32, Device{})}});
}

Samples y_of(const Dataset& set, const Samples& indices) {
  return set.get(indices).y.to_vector<std::int64_t>();
}

Samples drawn_of(const Dataset& set, const Samples& indices, const Draws& draws) {
  return set.augmented(indices, draws).y.to_vector<std::int64_t>();
}

}  // namespace

TEST_CASE("rows of tensors are samples") {
  const auto set = counted(5);
  const Samples some{4, 0, 4};
  const Batch batch = set->get(some);
  CHECK(batch.x.to_vector<std::int64_t>() == Samples{8, 9, 0, 1, 8, 9});
  CHECK(batch.y.to_vector<std::int64_t>() == Samples{4, 0, 4});
  CHECK(batch["none"].shape() == Shape{3, 0});
  CHECK(set->get({}).x.shape() == Shape{0, 2});
  CHECK(!TensorDataset(set->rows().x).get(some).y.defined());
  check_has(error_of([&] { set->get(Samples{5}); }),
            "[data] tensor set: expected an index from 0 to 4, got 5");
  check_has(error_of([&] { TensorDataset(set->rows().x, Tensor::zeros({4})); }),
            "[data] tensor set: expected 'y' of 5 rows, as x has, got shape [4]");
  check_has(error_of([&] { TensorDataset{Tensor()}; }), "expected x of a row a sample, got none");
}

TEST_CASE("a subset is some samples of the whole, with the whole's chance") {
  const auto whole = std::make_shared<Drawn>(30);
  const Subset part(whole, {29, 3, 3});
  CHECK(part.size() == 3);
  const Samples all{0, 1, 2}, in_whole{29, 3, 3};
  CHECK(part.get(all).x.to_vector<std::int64_t>() == in_whole);
  const Draws draws{5, 7};
  CHECK(drawn_of(part, all, draws) == drawn_of(*whole, in_whole, draws));
  check_has(error_of([&] { Subset(whole, {30}); }),
            "[data] subset: expected an index from 0 to 29, got 30");
  check_has(error_of([&] { part.get(Samples{3}); }), "expected an index from 0 to 2, got 3");
  check_has(error_of([&] { Subset(nullptr, {}); }), "[data] subset: expected a data set, got none");
}

TEST_CASE("parts by chance have every sample once, in sizes as PyTorch gives them") {
  for (const std::int64_t n : {0, 1, 2, 3, 10, 97}) {
    for (const std::vector<double>& parts : std::vector<std::vector<double>>{
             {1}, {0.5, 0.5}, {0.7, 0.2, 0.1}, {0, 1}, {0.3, 0.3, 0.3, 0.1}}) {
      const auto split = random_parts(n, parts, 11);
      REQUIRE(split.size() == parts.size());
      CHECK(sorted(flat(split)) == up_to(n));
    }
  }
  const auto sizes = [](std::int64_t n, const std::vector<double>& parts) {
    Samples counts;
    for (const auto& part : random_parts(n, parts)) counts.push_back(std::ssize(part));
    return counts;
  };
  // torch.utils.data.random_split(range(n), parts) of PyTorch 2.15
  CHECK(sizes(10, {0.3, 0.3, 0.4}) == Samples{3, 3, 4});
  CHECK(sizes(11, {0.3, 0.3, 0.4}) == Samples{4, 3, 4});
  CHECK(sizes(97, {0.5, 0.25, 0.25}) == Samples{49, 24, 24});
  CHECK(sizes(10, {7, 3}) == Samples{7, 3});
  CHECK(random_parts(50, {25, 25}, 1) == random_parts(50, {25, 25}, 1));
  CHECK(random_parts(50, {25, 25}, 1) != random_parts(50, {25, 25}, 2));
  const auto subsets = random_split(counted(10), {0.8, 0.2}, 3);
  CHECK(sorted(flat({y_of(*subsets[0], up_to(8)), y_of(*subsets[1], up_to(2))})) == up_to(10));
  check_has(
      error_of([] {
        random_parts(10, {5, 4});
      }),
      "[data] random_split: expected numbers of samples of sum 10, or fractions of sum 1, got "
      "a sum of 9");
  check_has(error_of([] { random_parts(10, {11, -1}); }), "expected parts of at least 0, got -1");
}

TEST_CASE("sets one behind the other are one set") {
  const ConcatDataset both({counted(3), counted(0), counted(4, 100)});
  CHECK(both.size() == 7);
  CHECK(y_of(both, up_to(7)) == Samples{0, 1, 2, 100, 101, 102, 103});
  const Batch mixed = both.get(Samples{6, 0, 3, 2});
  CHECK(mixed.y.to_vector<std::int64_t>() == Samples{103, 0, 100, 2});
  CHECK(mixed.x.to_vector<std::int64_t>() == Samples{106, 107, 0, 1, 100, 101, 4, 5});
  CHECK(mixed["none"].shape() == Shape{4, 0});
  CHECK(y_of(both, {4, 4}) == Samples{101, 101});
  CHECK(both.get({}).x.shape() == Shape{0, 2});
  check_has(error_of([&] { both.get(Samples{7}); }),
            "[data] concat: expected an index from 0 to 6, got 7");
  check_has(error_of([] { ConcatDataset({}); }), "expected at least one data set, got none");
  check_has(error_of([] { ConcatDataset({counted(1), nullptr}); }), "data set 1 is null");
}

TEST_CASE("chance of two sets that are put together is not the same") {
  const auto whole = std::make_shared<Drawn>(4);
  const ConcatDataset both({whole, whole});
  const Draws draws{5, 2};
  const Samples drawn = drawn_of(both, up_to(8), draws);
  CHECK(Samples(drawn.begin(), drawn.begin() + 4) == drawn_of(*whole, up_to(4), draws));
  CHECK(std::set<std::int64_t>(drawn.begin(), drawn.end()).size() == 8);
}

TEST_CASE("samples of several kinds are not put together") {
  const auto other = std::make_shared<TensorDataset>(Tensor::zeros({2, 3}, DType::i64, Device{}));
  const ConcatDataset both({counted(2), other});
  check_has(error_of([&] { both.get(Samples{0, 2}); }), "other names");
  const auto rows = [](const Shape& shape, DType dtype) {
    return std::make_shared<TensorDataset>(Tensor::zeros(shape, dtype, Device{}));
  };
  const ConcatDataset shapes({rows({2, 2}, DType::i64), rows({2, 3}, DType::i64)});
  check_has(error_of([&] {
              shapes.get(Samples{0, 2});
            }),
            "[data] concat: samples of set 1 have 'x' i64 [3], those of a set before i64 [2]");
  const ConcatDataset types({rows({2}, DType::i64), rows({2}, DType::f32)});
  check_has(error_of([&] { types.get(Samples{0, 2}); }), "'x' f32 []");
}

TEST_CASE("sets that give other rows than were asked for are not put together") {
  struct Short : Dataset {
    explicit Short(std::function<void(Batch&)> change) : spoil(std::move(change)) {}
    std::int64_t size() const override { return 5; }
    Batch get(std::span<const std::int64_t> indices) const override {
      Batch batch = counted(5)->get(indices);
      spoil(batch);
      return batch;
    }
    std::function<void(Batch&)> spoil;
  };
  const auto words = [](const std::function<void(Batch&)>& spoil) {
    const ConcatDataset both({counted(2), std::make_shared<Short>(spoil)});
    return error_of([&] { both.get(Samples{0, 2, 3}); });
  };
  const Tensor one = Tensor::zeros({1, 2}, DType::i64, Device{});
  check_has(words([&](Batch& batch) { batch.x = one; }),
            "[data] concat: expected 'x' of 2 rows from set 1, one a sample, on the CPU, got "
            "i64 [1, 2] on cpu");
  check_has(words([&](Batch& batch) { batch.y = Tensor::zeros({3}, DType::i64, Device{}); }),
            "expected 'y' of 2 rows from set 1");
  check_has(words([&](Batch& batch) {
              batch.more[0].second = Tensor::zeros({0, 0}, DType::f32, Device{});
            }),
            "expected 'none' of 2 rows from set 1");
  check_has(words([&](Batch& batch) { batch.y = Tensor::scalar(std::int64_t{1}, Device{}); }),
            "expected 'y' of 2 rows from set 1, one a sample, on the CPU, got i64 [] on cpu");
}

TEST_CASE("chance of sets that are put together twice over is not the same") {
  const auto whole = std::make_shared<Drawn>(4);
  const auto both = std::make_shared<ConcatDataset>(std::vector<DatasetRef>{whole, whole});
  const ConcatDataset four({both, both});
  const Draws draws{5, 2};
  const Samples drawn = drawn_of(four, up_to(16), draws);
  CHECK(std::set<std::int64_t>(drawn.begin(), drawn.end()).size() == 16);
}
