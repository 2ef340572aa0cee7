// SPDX-License-Identifier: Apache-2.0
// What ops compute, against the definitions written out in plain loops.
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using test::distance;
using test::doubles;
using test::normal;

namespace {

// dropout(x, training()) and unique(x, true) would mean other things than they say.
template <class T>
concept drops = requires(const Tensor& x, T p) {
  dropout(x, p);
};
template <class T>
concept is_dimension = requires(const Tensor& x, T dim) {
  unique(x, dim);
};
static_assert(drops<double> && drops<int> && !drops<bool>);
static_assert(is_dimension<int> && !is_dimension<bool>);

// The element of x that stands at place `at` of a shape it broadcasts to.
template <class T>
T stretched(const Tensor& x, const Shape& to, std::int64_t at) {
  std::int64_t offset = 0, step = 1;
  for (int d = 1; d <= to.dim(); ++d) {
    const std::int64_t i = at % to[-d];
    at /= to[-d];
    if (d > x.dim()) continue;
    if (x.shape()[-d] != 1) offset += i * step;
    step *= x.shape()[-d];
  }
  return x.data<T>()[offset];
}

template <class T>
void check_arithmetic(const Shape& a_shape, const Shape& b_shape, const Shape& to) {
  Tensor a = Tensor::empty(a_shape, dtype_of<T>), b = Tensor::empty(b_shape, dtype_of<T>);
  for (std::int64_t i = 0; i < a.numel(); ++i)
    a.data<T>()[i] = static_cast<T>(static_cast<float>(i % 13 - 6));
  for (std::int64_t i = 0; i < b.numel(); ++i)
    b.data<T>()[i] = static_cast<T>(static_cast<float>(i % 7 + 1));
  const Tensor plus = a + b, minus = a - b, times = a * b;
  CHECK(plus.shape() == to);
  int wrong = 0;
  for (std::int64_t i = 0; i < to.numel(); ++i) {
    const T x = stretched<T>(a, to, i), y = stretched<T>(b, to, i);
    wrong += static_cast<float>(plus.data<T>()[i]) != static_cast<float>(static_cast<T>(x + y));
    wrong += static_cast<float>(minus.data<T>()[i]) != static_cast<float>(static_cast<T>(x - y));
    wrong += static_cast<float>(times.data<T>()[i]) != static_cast<float>(static_cast<T>(x * y));
    if constexpr (!std::is_integral_v<T>) {
      wrong +=
          static_cast<float>((a / b).data<T>()[i]) != static_cast<float>(static_cast<T>(x / y));
    }
  }
  CHECK(wrong == 0);
}

template <class... T>
void check_arithmetic_of_all(const Shape& a, const Shape& b, const Shape& to) {
  (check_arithmetic<T>(a, b, to), ...);
}

}  // namespace

TEST_CASE("arithmetic broadcasts, in every dtype") {
  const auto all = check_arithmetic_of_all<float, double, Half, BFloat16, std::int32_t,
                                           std::int64_t, std::int8_t>;
  all({}, {}, {});
  all({33}, {33}, {33});
  all({3, 17}, {17}, {3, 17});
  all({3, 1}, {1, 17}, {3, 17});
  all({1}, {65}, {65});
  all({65}, {}, {65});
  all({2, 3, 5}, {3, 1}, {2, 3, 5});
  all({2, 1, 5}, {1, 3, 1}, {2, 3, 5});
  all({1, 3, 1, 5}, {2, 1, 3, 1}, {2, 3, 3, 5});
  all({0, 3}, {3}, {0, 3});
}

TEST_CASE("relu lets NaN through") {
  const Tensor y = relu(Tensor::from(std::vector<float>{-1, 0, 2, NAN, -INFINITY, INFINITY}, {6}));
  CHECK(y.data<float>()[0] == 0);
  CHECK(y.data<float>()[1] == 0);
  CHECK(y.data<float>()[2] == 2);
  CHECK(std::isnan(y.data<float>()[3]));
  CHECK(y.data<float>()[4] == 0);
  CHECK(y.data<float>()[5] == INFINITY);
}

TEST_CASE("relu takes over an intermediate result, and nothing that anybody still sees") {
  const Tensor x = normal<float>({33}, 1);
  x.set_requires_grad();
  Tensor kept = x * 1.0;
  const float* elements = kept.data<float>();
  const Tensor alias = kept.detach();
  CHECK(relu(std::move(kept)).data<float>() != elements);
  Tensor alone = x * 1.0;
  elements = alone.data<float>();
  const Tensor y = relu(std::move(alone));
  CHECK(y.data<float>() == elements);
  sum(relu(y * 1.0)).backward();
  int wrong = 0;
  for (std::int64_t i = 0; i < 33; ++i) {
    wrong += x.grad().data<float>()[i] != (x.data<float>()[i] > 0 ? 1.0f : 0.0f);
  }
  CHECK(wrong == 0);
  {
    const NoGrad guard;
    Tensor evaluated = x * 1.0;
    elements = evaluated.data<float>();
    CHECK(relu(std::move(evaluated)).data<float>() == elements);
  }
  float own[2] = {-1, 1};
  relu(Tensor::from_blob(own, {2}, DType::f32));
  CHECK(own[0] == -1);
}

TEST_CASE("sum and mean over every set of dimensions, integers exactly") {
  const Shape shape{3, 4, 1, 5};
  const Tensor x = normal<double>(shape, 1);
  const Tensor integers = arange(shape.numel());
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<int> dims;
    Shape kept;
    std::int64_t count = 1;
    for (int d = 0; d < 4; ++d) {
      if (mask >> d & 1) {
        dims.push_back(d);
        count *= shape[d];
      } else {
        kept.push_back(shape[d]);
      }
    }
    std::vector<double> expected(static_cast<std::size_t>(kept.numel()), 0.0), exact = expected;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      std::int64_t rest = i, at = 0, step = 1;
      for (int d = 3; d >= 0; --d) {
        const std::int64_t place = rest % shape[d];
        rest /= shape[d];
        if (mask >> d & 1) continue;
        at += place * step;
        step *= shape[d];
      }
      expected[static_cast<std::size_t>(at)] += x.data<double>()[i];
      exact[static_cast<std::size_t>(at)] += static_cast<double>(i);
    }
    const Tensor total = sum(x, dims);
    CHECK(total.shape() == kept);
    CHECK(distance(doubles(total), expected) < 1e-14);
    const Tensor whole = sum(reshape(integers, {3, 4, 1, 5}), dims);
    CHECK(whole.dtype() == DType::i64);
    CHECK(doubles(whole) == exact);
    for (double& value : expected) value /= static_cast<double>(count);
    CHECK(distance(doubles(mean(x, dims)), expected) < 1e-14);
  }
  const Tensor flags = Tensor::from_blob(new bool[3]{true, false, true}, {3}, DType::boolean);
  CHECK(sum(flags).item<std::int64_t>() == 2);
  delete[] flags.data<bool>();
}

TEST_CASE("low precision accumulates wider") {
  const Tensor x = full({10000}, 1.0, DType::f16);
  CHECK(sum(x).item<float>() == 10000);
  CHECK(mean(full({70000}, 3.0, DType::bf16)).item<float>() == 3);
  CHECK(sum(full({1 << 24}, 0.1)).item<float>() == doctest::Approx(0.1f * (1 << 24)).epsilon(1e-6));
}

TEST_CASE("argmax takes the first among equals, and NaN over numbers") {
  const Tensor x = Tensor::from(std::vector<float>{1, 5, 5, -1, NAN, 7}, {2, 3});
  CHECK(argmax(x, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1});
  CHECK(argmax(x, 0).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 1});
  CHECK(argmax(Tensor::from(std::vector<std::int64_t>{3, 9, 2}, {3}), -1).item<std::int64_t>() ==
        1);
}

TEST_CASE("matmul in every dtype and with every flag is the sum of products") {
  const auto check = []<class T>(double good, bool ta, bool tb) {
    const std::int64_t m = 17, k = 33, n = 3;
    const Tensor a = normal<T>(ta ? Shape{k, m} : Shape{m, k}, 1);
    const Tensor b = normal<T>(tb ? Shape{n, k} : Shape{k, n}, 2);
    const auto x = doubles(a), y = doubles(b);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double total = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          total += x[static_cast<std::size_t>(ta ? p * m + i : i * k + p)] *
                   y[static_cast<std::size_t>(tb ? j * k + p : p * n + j)];
        }
        expected.push_back(total);
      }
    }
    CHECK(distance(doubles(matmul(a, b, ta, tb)), expected) < good);
  };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      check.operator()<float>(1e-6, ta, tb);
      check.operator()<double>(1e-14, ta, tb);
      check.operator()<Half>(1e-3, ta, tb);
      check.operator()<BFloat16>(1e-2, ta, tb);
      check.operator()<std::int64_t>(1e-14, ta, tb);
    }
  }
  CHECK(doubles(matmul(Tensor::zeros({2, 0}), Tensor::zeros({0, 3}))) ==
        std::vector<double>(6, 0.0));
}

TEST_CASE("conv2d is the cross-correlation of its definition") {
  struct Case {
    Shape x, weight;
    Conv2dOptions options;
  };
  const std::vector<Case> cases = {
      {{2, 3, 9, 17}, {5, 3, 3, 3}, {}},
      {{1, 17, 7, 7}, {33, 17, 3, 3}, {{1, 1}, {1, 1}}},
      {{2, 3, 11, 8}, {4, 3, 3, 2}, {{2, 3}, {1, 0}}},
      {{1, 1, 5, 5}, {1, 1, 5, 5}, {{1, 1}, {2, 2}}},
      {{3, 2, 6, 7}, {16, 2, 1, 1}, {{2, 2}, {0, 0}}},
      {{1, 3, 8, 10},
       {2, 3, 3, 3},
       {{3, 4}, {1, 1}}},  // the last window ends before the input does
  };
  for (const Case& c : cases) {
    for (const bool with_bias : {false, true}) {
      const Tensor x = normal<double>(c.x, 1), w = normal<double>(c.weight, 2);
      const Tensor b = with_bias ? normal<double>({c.weight[0]}, 3) : Tensor();
      const Tensor y = conv2d(x, w, b, c.options);
      std::vector<double> expected;
      for (std::int64_t n = 0; n < c.x[0]; ++n) {
        for (std::int64_t o = 0; o < c.weight[0]; ++o) {
          for (std::int64_t i = 0; i < y.size(2); ++i) {
            for (std::int64_t j = 0; j < y.size(3); ++j) {
              double total = with_bias ? b.data<double>()[o] : 0;
              for (std::int64_t ch = 0; ch < c.x[1]; ++ch) {
                for (std::int64_t p = 0; p < c.weight[2]; ++p) {
                  for (std::int64_t q = 0; q < c.weight[3]; ++q) {
                    const std::int64_t row = i * c.options.stride[0] + p - c.options.padding[0];
                    const std::int64_t column = j * c.options.stride[1] + q - c.options.padding[1];
                    if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) continue;
                    total +=
                        x.data<double>()[((n * c.x[1] + ch) * c.x[2] + row) * c.x[3] + column] *
                        w.data<double>()[((o * c.x[1] + ch) * c.weight[2] + p) * c.weight[3] + q];
                  }
                }
              }
              expected.push_back(total);
            }
          }
        }
      }
      CHECK(distance(doubles(y), expected) < 1e-13);
      const Tensor narrow =
          conv2d(normal<float>(c.x, 1), normal<float>(c.weight, 2),
                 with_bias ? normal<float>({c.weight[0]}, 3) : Tensor(), c.options);
      CHECK(distance(doubles(narrow), expected) < 1e-5);
    }
  }
}

TEST_CASE("max_pool2d's ragged windows, as PyTorch counts them") {
  // One window, cut off, where less than a stride is missing; never one more beside it.
  CHECK(max_pool2d(Tensor::from<float>({1, 2, 3, 4}, {1, 1, 2, 2}), {3, 3},
                   {.stride = {2, 2}, .ceil_mode = true})
            .to_vector<float>() == std::vector<float>{4});
  CHECK(max_pool2d(arange(15, DType::f32).detach({1, 1, 3, 5}), {4, 2},
                   {.stride = {2, 2}, .ceil_mode = true})
            .shape() == Shape{1, 1, 1, 3});
}

TEST_CASE("max_pool2d takes each window's largest; NaN wins") {
  for (const auto& [kernel, stride, shape] :
       std::vector<std::tuple<Pair, PoolStride, Shape>>{{{2, 2}, {}, {3, 5, 24, 24}},
                                                        {{2, 2}, {2, 2}, {1, 3, 7, 35}},
                                                        {{2, 2}, {2, 2}, {2, 1, 66, 66}},
                                                        {{2, 2}, {1, 1}, {1, 2, 5, 9}},
                                                        {{3, 2}, {2, 3}, {1, 2, 9, 11}},
                                                        {{2, 2}, {2, 2}, {1, 1, 2, 2}}}) {
    const Tensor x = normal<float>(shape, 1);
    x.data<float>()[x.numel() / 2] = NAN;
    const Tensor y = max_pool2d(x, kernel, {.stride = stride});
    const auto [sh, sw] = stride.value_or(kernel);
    std::vector<double> expected;
    for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane) {
      for (std::int64_t i = 0; i < y.size(2); ++i) {
        for (std::int64_t j = 0; j < y.size(3); ++j) {
          float largest = -INFINITY;
          for (std::int64_t p = 0; p < kernel[0]; ++p) {
            for (std::int64_t q = 0; q < kernel[1]; ++q) {
              const float value =
                  x.data<float>()[(plane * shape[2] + i * sh + p) * shape[3] + j * sw + q];
              if (value > largest || std::isnan(value)) largest = value;
              if (std::isnan(largest)) break;
            }
            if (std::isnan(largest)) break;
          }
          expected.push_back(largest);
        }
      }
    }
    CHECK(distance(doubles(y), expected) == 0);
  }
}

TEST_CASE("log_softmax is finite for any finite input, and its exponentials add to 1") {
  const Tensor x = Tensor::from(std::vector<float>{1e30f, 0, -1e30f, 3, 3, 3}, {2, 3});
  const auto y = doubles(log_softmax(x));
  CHECK(y[0] == 0);
  CHECK(y[3] == doctest::Approx(-std::log(3.0)));
  for (double value : y) CHECK(std::isfinite(value));
  const auto z = doubles(log_softmax(normal<double>({7, 65}, 1)));
  for (std::size_t row = 0; row < 7; ++row) {
    double total = 0;
    for (std::size_t i = 0; i < 65; ++i) total += std::exp(z[row * 65 + i]);
    CHECK(total == doctest::Approx(1).epsilon(1e-12));
  }
}

TEST_CASE("losses pick the target's log-probability; cross_entropy is both in one") {
  const Tensor logits = normal<double>({3, 5}, 1);
  const Tensor target = Tensor::from(std::vector<std::int64_t>{4, 0, 2}, {3});
  const auto y = doubles(log_softmax(logits));
  const std::vector<double> each{-y[4], -y[5], -y[12]};
  CHECK(doubles(nll_loss(log_softmax(logits), target, Reduction::none)) == each);
  CHECK(doubles(cross_entropy(logits, target, Reduction::none)) == each);
  const double total = each[0] + each[1] + each[2];
  CHECK(cross_entropy(logits, target, Reduction::sum).item<double>() ==
        doctest::Approx(total).epsilon(1e-14));
  CHECK(cross_entropy(logits, target).item<double>() == doctest::Approx(total / 3).epsilon(1e-14));
  CHECK(nll_loss(log_softmax(logits), target).item<double>() ==
        doctest::Approx(total / 3).epsilon(1e-14));
}

TEST_CASE("dropout keeps where the stream's word says so, and scales") {
  const double p = 0.3;
  for (const std::int64_t n : {1, 3, 33, 65, 1000, 100000}) {
    manual_seed(11);
    context().generator.offset = 8;
    const Tensor x = normal<float>({n}, 1);
    const Tensor y = dropout(x, p), z = dropout(normal<double>({n}, 1), p);
    CHECK(context().generator.offset == 8 + static_cast<std::uint64_t>(2 * ((n + 3) / 4 * 4)));
    int wrong = 0;
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const bool keep = philox_word(11, 8 + static_cast<std::uint64_t>(i)) >= p * 0x1p32;
      const float expected = keep ? x.data<float>()[i] * static_cast<float>(1 / 0.7) : 0.0f;
      wrong += y.data<float>()[i] != expected;
      kept += keep;
    }
    CHECK(wrong == 0);
    if (n == 100000) CHECK(std::abs(static_cast<double>(kept) / 1e5 - 0.7) < 0.01);
    int wrong_wide = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = 8 + static_cast<std::uint64_t>((n + 3) / 4 * 4 + i);
      wrong_wide += (z.data<double>()[i] != 0) != (philox_word(11, at) >= p * 0x1p32);
    }
    CHECK(wrong_wide == 0);
  }
  const Tensor x = normal<float>({5}, 1);
  CHECK(dropout(x, 0.5, false).same_as(x));
}

TEST_CASE("dropout of channels takes all of one or none") {
  const Tensor x = normal<double>({4, 6, 3, 2}, 1);
  const auto drawn = [](auto f) {
    manual_seed(3);
    return f();
  };
  const Tensor kept = drawn([&] { return feature_dropout(ones({4, 6, 1, 1}, DType::f64), 0.4); });
  const auto count = sum(kept > 0).item<std::int64_t>();
  CHECK(count > 0);
  CHECK(count < 24);
  CHECK(equal(drawn([&] { return dropout2d(x, 0.4); }), x * kept));
  // Elements that go become -alpha lambda of SELU, and all are scaled and shifted.
  constexpr double least = 1.7580993408473766, p = 0.4;
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * least * least));
  const Tensor expected = where(kept > 0, x * scale + scale * least * p, -scale * least * (1 - p));
  CHECK(allclose(drawn([&] { return feature_alpha_dropout(x, p); }), expected));
  CHECK(feature_alpha_dropout(x, p, false).same_as(x));
}

TEST_CASE("factories fill, count and draw") {
  CHECK(doubles(full({3}, 2.5, DType::bf16)) == std::vector<double>(3, 2.5));
  CHECK(doubles(ones({2}, DType::boolean)) == std::vector<double>(2, 1.0));
  CHECK(doubles(arange(4, DType::f32)) == std::vector<double>{0, 1, 2, 3});
  manual_seed(1);
  const auto u = doubles(uniform({20001}, -2, 3));
  manual_seed(1);
  CHECK(doubles(uniform({20001}, -2, 3)) == u);
  double low = 3, high = -2, total = 0;
  for (double value : u) {
    low = std::min(low, value);
    high = std::max(high, value);
    total += value;
  }
  CHECK(low >= -2);
  CHECK(high < 3);
  CHECK(total / 20001 == doctest::Approx(0.5).epsilon(0.1));
  const auto z = doubles(randn({20001}, DType::f64));
  double first = 0, second = 0;
  for (double value : z) {
    first += value;
    second += value * value;
  }
  CHECK(std::abs(first / 20001) < 0.03);
  CHECK(second / 20001 == doctest::Approx(1).epsilon(0.05));
  const Tensor x = Tensor::zeros({3});
  const auto version = x.storage()->version();
  fill_(x, 4);
  CHECK(doubles(x) == std::vector<double>(3, 4.0));
  CHECK(x.storage()->version() == version + 1);
}

TEST_CASE("in-place arithmetic") {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  add_(x, ones({3}), 0.5);
  mul_(x, 2);
  CHECK(doubles(x) == std::vector<double>{3, 5, 7});
}

TEST_CASE("places outside of an image read nothing of it") {
  const double inf = std::numeric_limits<double>::infinity(), none = std::nan("");
  for (const GridMode mode : {GridMode::bilinear, GridMode::nearest, GridMode::bicubic}) {
    const Tensor x = full({1, 2, 3, 2}, mode == GridMode::nearest ? none : inf, DType::f64);
    x.set_requires_grad();
    const Tensor grid = Tensor::from(std::vector<double>{-9, 0, 3, 3, 0, inf, 8, -8}, {1, 2, 2, 2});
    grid.set_requires_grad();
    const Tensor y = grid_sample(x, grid, {.mode = mode});
    CHECK(doubles(y) == std::vector<double>(8, 0.0));
    y.backward(ones({1, 2, 2, 2}, DType::f64));
    CHECK(doubles(x.grad()) == std::vector<double>(12, 0.0));
    CHECK(doubles(grid.grad()) == std::vector<double>(8, 0.0));
    // The gradient that is recorded is made of ops.
    const Tensor slope =
        autograd::grad({grid_sample(x, grid, {.mode = mode})}, {grid},
                       {.grad_outputs = {ones({1, 2, 2, 2}, DType::f64)}, .create_graph = true})[0];
    CHECK(doubles(slope) == std::vector<double>(8, 0.0));
    const Tensor nowhere = full({1, 1, 1, 2}, none, DType::f64);
    CHECK(std::isnan(
        doubles(grid_sample(ones({1, 1, 3, 2}, DType::f64), nowhere, {.mode = mode}))[0]));
  }
}

TEST_CASE("rows of any width are put beside each other, taken apart and picked") {
  constexpr std::int64_t rows = 7, count = 150;
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    CAPTURE(dtype);
    for (std::int64_t width = 1; width <= 70; ++width) {
      CAPTURE(width);
      const Tensor x = cast(reshape(remainder(arange(0, rows * width), 100), {rows, width}), dtype);
      const Tensor both = cat({x, x + x, x}, 1);
      const Parts parts = split(both, {width, width, width}, 1);
      CHECK(doubles(parts[0]) == doubles(x));
      CHECK(doubles(parts[1]) == doubles(x + x));
      CHECK(doubles(parts[2]) == doubles(x));
      std::vector<std::int64_t> index;
      for (std::int64_t i = 0; i < count; ++i) index.push_back(i * 5 % rows);
      const auto picked = doubles(index_select(x, 0, Tensor::from(index, {count})));
      const auto from = doubles(x);
      for (std::int64_t i = 0; i < count * width; ++i) {
        const std::int64_t at = index[static_cast<std::size_t>(i / width)] * width + i % width;
        REQUIRE(picked[static_cast<std::size_t>(i)] == from[static_cast<std::size_t>(at)]);
      }
    }
  }
}

// So many that threads share them, and begin in the middle of dimensions.
TEST_CASE("rows of several dimensions, each stretched where the other operand is not") {
  constexpr std::size_t width = 410;
  const Tensor x = normal<float>({2, 1, 3, 1, 2, width}, 1),
               y = normal<float>({2, 5, 1, 7, 2, 1}, 2);
  const Tensor sum = x + y;
  const auto a = doubles(x), b = doubles(y), all = doubles(sum);
  std::size_t at = 0;
  for (std::size_t row = 0; row < 2 * 5 * 3 * 7 * 2; ++row) {
    const std::size_t m = row % 2, l = row / 2 % 7, k = row / 14 % 3, j = row / 42 % 5,
                      i = row / 210;
    for (std::size_t n = 0; n < width; ++n, ++at) {
      const auto left = static_cast<float>(a[((i * 3 + k) * 2 + m) * width + n]);
      const auto right = static_cast<float>(b[((i * 5 + j) * 7 + l) * 2 + m]);
      REQUIRE(all[at] == left + right);
    }
  }
}
