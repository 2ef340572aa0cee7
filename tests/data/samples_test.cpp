// SPDX-License-Identifier: Apache-2.0
// Sets that say what one sample is: stacking and padding, chance, and what is refused.
#include <doctest/doctest.h>
#include <peal/data/loader.h>
#include <peal/data/samples.h>
#include <peal/tests/errors.h>

#include <limits>
#include <vector>

using namespace peal;
using data::Batch;
using data::Sample;
using testing::check_has;
using testing::error_of;

namespace {

struct Squares : data::SampleSet {
  std::int64_t size() const override { return 100; }
  Sample sample(std::int64_t i, data::Draw& draw) const override {
    const auto x = static_cast<float>(i);
    return {Tensor::from(std::vector<float>{x, x * x}, {2}, Device{}),
            Tensor::scalar(i, Device{}),
            {{"drawn", Tensor::scalar(static_cast<std::int64_t>(draw.bits()), Device{})}}};
  }
};

// Text i is the numbers i, i, i, ... i % 4 + 1 of them; its labels are as many.
struct Texts : data::SampleSet {
  using SampleSet::SampleSet;
  std::int64_t size() const override { return 8; }
  Sample sample(std::int64_t i, data::Draw&) const override {
    const std::vector<std::int64_t> words(static_cast<std::size_t>(i % 4 + 1), i);
    const Tensor x = Tensor::from(words, {std::ssize(words)}, Device{});
    return {x, x};
  }
};

Tensor i64(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, Device{});
}

std::vector<std::int64_t> numbers(const Tensor& x) { return x.to_vector<std::int64_t>(); }

}  // namespace

TEST_CASE("samples are stacked, and chance belongs to the sample, whatever batch it is in") {
  const auto set = std::make_shared<Squares>();
  std::vector<std::vector<std::int64_t>> drawn;
  for (const int workers : {0, 3}) {
    data::DataLoader loader(set, {.batch_size = 7, .shuffle = true, .seed = 3, .workers = workers});
    std::vector<std::int64_t> by_sample(100, -1);
    for (const Batch& batch : loader) {
      const auto y = numbers(batch.y), bits = numbers(batch["drawn"]);
      REQUIRE(batch.x.shape() == Shape{std::ssize(y), 2});
      for (std::size_t i = 0; i < y.size(); ++i) {
        CHECK(batch.x.data<float>()[2 * i + 1] == static_cast<float>(y[i] * y[i]));
        by_sample[static_cast<std::size_t>(y[i])] = bits[i];
      }
    }
    drawn.push_back(by_sample);
  }
  CHECK(drawn[0] == drawn[1]);
  const data::Draws draws{3, 0};
  for (std::int64_t i = 0; i < 100; ++i) {
    CHECK(drawn[0][static_cast<std::size_t>(i)] == draws.of(i).bits());
  }
  const std::vector<std::int64_t> one{5};
  CHECK(numbers(set->get(one)["drawn"])[0] == data::Draws{}.of(5).bits());
}

TEST_CASE("texts are padded on either side, and their lengths come along") {
  const std::vector<std::int64_t> some{1, 3, 4};  // of 2, 4 and 1 words
  const Batch right = Texts(data::pad_collate({.value = 9})).get(some);
  CHECK(right.x.shape() == Shape{3, 4});
  CHECK(numbers(right.x) == std::vector<std::int64_t>{1, 1, 9, 9, 3, 3, 3, 3, 4, 9, 9, 9});
  CHECK(numbers(right.y) ==
        std::vector<std::int64_t>{1, 1, -100, -100, 3, 3, 3, 3, 4, -100, -100, -100});
  CHECK(numbers(right["lengths"]) == std::vector<std::int64_t>{2, 4, 1});
  const Batch left =
      Texts(data::pad_collate({.value = 9, .y_value = 0, .side = data::Padding::left})).get(some);
  CHECK(numbers(left.x) == std::vector<std::int64_t>{9, 9, 1, 1, 3, 3, 3, 3, 9, 9, 9, 4});
  CHECK(numbers(left.y) == std::vector<std::int64_t>{0, 0, 1, 1, 3, 3, 3, 3, 0, 0, 0, 4});
}

TEST_CASE("padding keeps further dimensions, numbers, empty samples, and every type") {
  const auto pad = data::pad_collate({.value = 2});
  const std::vector<Sample> samples{
      {Tensor::zeros({2, 3}, DType::f16, Device{}), Tensor::scalar(1.0f, Device{})},
      {Tensor::zeros({0, 3}, DType::f16, Device{}), Tensor::scalar(2.0f, Device{})}};
  const Batch batch = pad(samples);
  CHECK(batch.x.shape() == Shape{2, 2, 3});
  CHECK(batch.x.dtype() == DType::f16);
  const auto x = batch.x.to_vector<Half>();
  CHECK(static_cast<float>(x[5]) == 0);
  CHECK(static_cast<float>(x[6]) == 2);
  CHECK(batch.y.to_vector<float>() == std::vector<float>{1, 2});
  CHECK(numbers(batch["lengths"]) == std::vector<std::int64_t>{2, 0});
  const std::vector<Sample> masks{{Tensor::zeros({1}, DType::boolean, Device{}), {}}};
  CHECK(!pad(masks).y.defined());
  const std::vector<Sample> named{{i64({1}, {1}), {}, {{"lengths", Tensor::scalar(7, Device{})}}}};
  CHECK(pad(named).more.size() == 1);
  CHECK(pad(named)["lengths"].item<int>() == 7);
}

TEST_CASE("padding that its type does not hold is refused, where there is some") {
  const auto words = [](DType type, const data::Padding& padding, bool of_y = false) {
    const Tensor one = Tensor::zeros({1}, type, Device{}), two = Tensor::zeros({2}, type, Device{});
    const Tensor text = i64({1}, {1}), longer = i64({1, 2}, {2});
    const std::vector<Sample> samples = of_y ? std::vector<Sample>{{text, one}, {longer, two}}
                                             : std::vector<Sample>{{one, {}}, {two, {}}};
    const auto together = data::pad_collate(padding);
    CHECK(together(std::vector<Sample>{samples[0], samples[0]}).size() == 2);
    return error_of([&] { together(samples); });
  };
  CHECK(words(DType::u8, {.value = 300}) ==
        "[data] collate: 'x' is u8, which does not hold its padding 300; give another (Padding)");
  CHECK(words(DType::u8, {}, true) ==
        "[data] collate: 'y' is u8, which does not hold its padding -100; give another (Padding)");
  CHECK(words(DType::u8, {.value = 255}) == "nothing");
  check_has(words(DType::u8, {.value = 0.5}), "its padding 0.5");
  check_has(words(DType::i64, {.value = 0x1p63}), "'x' is i64, which does not hold its padding 9");
  CHECK(words(DType::i64, {.value = -0x1p63}) == "nothing");
  check_has(words(DType::i64, {.value = std::numeric_limits<double>::quiet_NaN()}), "padding nan");
  check_has(words(DType::boolean, {.value = 2}), "'x' is bool, which does not hold its padding 2");
  CHECK(words(DType::boolean, {.value = 1}) == "nothing");
  CHECK(words(DType::f32, {.value = std::numeric_limits<double>::infinity()}) == "nothing");
}

TEST_CASE("what cannot be put together is named") {
  const auto refused = [](const std::vector<Sample>& samples, const char* words,
                          const data::Collate& together = data::collate) {
    check_has(error_of([&] { together(samples); }), words);
  };
  const Tensor two = i64({1, 2}, {2}), three = i64({1, 2, 3}, {3});
  refused({}, "[data] collate: expected at least one sample, got none");
  refused({{two, {}}, {three, {}}},
          "[data] collate: sample 1 of the batch has 'x' i64 [3], sample 0 has i64 [2]; give all "
          "one type and shape, or pad them (pad_collate)");
  refused({{two, two}, {two, {}}}, "sample 1 of the batch has 'y' none, sample 0 has i64 [2]");
  refused({{two, {}, {{"a", two}}}, {two, {}, {{"b", two}}}},
          "sample 1 of the batch has other names in `more` than sample 0");
  refused({{i64({1, 2}, {1, 2}), {}}, {i64({1, 2, 3}, {1, 3}), {}}},
          "sample 1 of the batch has 'x' i64 [1, 3], sample 0 has i64 [1, 2]; only first "
          "dimensions may differ",
          data::pad_collate());
  refused({{two, {}}, {Tensor::zeros({2}, DType::f32, Device{}), {}}}, "'x' f32 [2]",
          data::pad_collate());
  const std::vector<std::int64_t> beyond{100};
  check_has(error_of([&] { Squares().get(beyond); }),
            "[data] set of samples: expected an index from 0 to 99, got 100");
}
