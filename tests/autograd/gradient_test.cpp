// SPDX-License-Identifier: Apache-2.0
// Every op's gradient in f64 against central differences, at odd shapes.
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>

#include "gradcheck.h"

#include <doctest/doctest.h>

using namespace peal;
using test::gradient_error;
using test::normal;

namespace {

constexpr double good = 1e-7;

Tensor n(const Shape& shape, unsigned seed) { return normal<double>(shape, seed); }

// Away from 0, for divisors.
Tensor far(const Shape& shape, unsigned seed) {
  const Tensor x = n(shape, seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    double& value = x.data<double>()[i];
    value += value < 0 ? -1 : 1;
  }
  return x;
}

// All elements differ by at least 0.01: no ties within reach of a difference.
Tensor distinct(const Shape& shape, unsigned seed) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.01 * static_cast<double>(i) - 0.005 * static_cast<double>(values.size()) + 0.003;
  }
  std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  return Tensor::from(values, shape);
}

const Tensor& targets() {
  static const Tensor t = Tensor::from(std::vector<std::int64_t>{2, 0, 4, 4, 1}, {5});
  return t;
}

}  // namespace

TEST_CASE("arithmetic, with every way to broadcast") {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{}, {}},
                                                      {{1}, {7}},
                                                      {{3, 5}, {3, 5}},
                                                      {{3, 5}, {5}},
                                                      {{5}, {3, 5}},
                                                      {{3, 1}, {1, 5}},
                                                      {{3, 1}, {3, 5}},
                                                      {{}, {3, 5}},
                                                      {{2, 3, 5}, {3, 1}},
                                                      {{2, 1, 5}, {3, 1}},
                                                      {{1, 3, 1, 5}, {2, 1, 3, 1}},
                                                      {{2, 3, 5}, {2, 1, 5}}};
  for (const auto& [a, b] : pairs) {
    CAPTURE(a.dim());
    CAPTURE(b.dim());
    CHECK(gradient_error([](const Tensors& x) { return x[0] + x[1]; }, {n(a, 1), n(b, 2)}) < good);
    CHECK(gradient_error([](const Tensors& x) { return x[0] - x[1]; }, {n(a, 1), n(b, 2)}) < good);
    CHECK(gradient_error([](const Tensors& x) { return x[0] * x[1]; }, {n(a, 1), n(b, 2)}) < good);
    CHECK(gradient_error([](const Tensors& x) { return x[0] / x[1]; }, {n(a, 1), far(b, 2)}) <
          good);
  }
}

TEST_CASE("arithmetic with numbers, and one tensor twice") {
  const auto f = [](const Tensors& x) {
    return (2.0 - x[0]) * (x[0] * 3.0 + 1.0) / 7.0 - (-x[0]) + x[0] * x[0];
  };
  CHECK(gradient_error(f, {n({3, 7}, 1)}) < good);
}

TEST_CASE("relu") {
  CHECK(gradient_error([](const Tensors& x) { return relu(x[0]); }, {distinct({3, 17}, 1)}) < good);
}

TEST_CASE("sum and mean over every set of dimensions") {
  for (int mask = 0; mask < 8; ++mask) {
    std::vector<int> dims;
    for (int d = 0; d < 3; ++d) {
      if (mask >> d & 1) dims.push_back(d % 2 == 0 ? d : d - 3);
    }
    for (const bool keep : {false, true}) {
      const auto total = [&](const Tensors& x) { return sum(x[0], dims, keep); };
      const auto average = [&](const Tensors& x) { return mean(x[0], dims, keep); };
      CHECK(gradient_error(total, {n({3, 1, 5}, 1)}) < good);
      CHECK(gradient_error(average, {n({2, 3, 5}, 1)}) < good);
    }
  }
  CHECK(gradient_error([](const Tensors& x) { return sum(x[0]); }, {n({3, 5}, 1)}) < good);
  CHECK(gradient_error([](const Tensors& x) { return mean(x[0]); }, {n({3, 5}, 1)}) < good);
}

TEST_CASE("reshape and flatten") {
  const auto f = [](const Tensors& x) { return flatten(reshape(x[0], {3, -1, 2}), 1); };
  CHECK(gradient_error(f, {n({2, 3, 5}, 1)}) < good);
}

TEST_CASE("matmul with every pair of flags") {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const auto f = [&](const Tensors& x) { return matmul(x[0], x[1], ta, tb); };
      CHECK(gradient_error(f, {n(ta ? Shape{5, 3} : Shape{3, 5}, 1),
                               n(tb ? Shape{7, 5} : Shape{5, 7}, 2)}) < good);
    }
  }
  CHECK(gradient_error([](const Tensors& x) { return matmul(x[0], x[0]); }, {n({3, 3}, 1)}) < good);
}

TEST_CASE("linear, with and without bias, for any leading shape") {
  const auto with = [](const Tensors& x) { return linear(x[0], x[1], x[2]); };
  const auto without = [](const Tensors& x) { return linear(x[0], x[1]); };
  for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 3, 5}, Shape{1, 5}}) {
    CHECK(gradient_error(with, {n(shape, 1), n({7, 5}, 2), n({7}, 3)}) < good);
    CHECK(gradient_error(without, {n(shape, 1), n({1, 5}, 2)}) < good);
  }
}

TEST_CASE("log_softmax, nll_loss and cross_entropy, with every reduction") {
  CHECK(gradient_error([](const Tensors& x) { return log_softmax(x[0]); }, {n({3, 2, 5}, 1)}) <
        good);
  CHECK(gradient_error([](const Tensors& x) { return log_softmax(x[0]); }, {n({7}, 1)}) < good);
  for (const Reduction how : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const auto nll = [&](const Tensors& x) { return nll_loss(x[0], targets(), how); };
    const auto entropy = [&](const Tensors& x) { return cross_entropy(x[0], targets(), how); };
    CHECK(gradient_error(nll, {n({5, 5}, 1)}) < good);
    CHECK(gradient_error(entropy, {n({5, 7}, 1)}) < good);
  }
}

TEST_CASE("conv2d with strides, padding, with and without bias") {
  struct Case {
    Shape x, weight;
    Conv2dOptions options;
  };
  const std::vector<Case> cases = {
      {{1, 1, 3, 3}, {1, 1, 3, 3}, {}},
      {{2, 3, 5, 7}, {2, 3, 3, 2}, {}},
      {{2, 1, 6, 5}, {3, 1, 3, 3}, {{2, 2}, {1, 1}}},
      {{1, 2, 7, 4}, {1, 2, 2, 3}, {{3, 1}, {0, 2}}},
      {{2, 2, 4, 4}, {3, 2, 1, 1}, {{2, 1}, {0, 0}}},
  };
  for (const Case& c : cases) {
    const auto with = [&](const Tensors& x) { return conv2d(x[0], x[1], x[2], c.options); };
    const auto without = [&](const Tensors& x) { return conv2d(x[0], x[1], {}, c.options); };
    CHECK(gradient_error(with, {n(c.x, 1), n(c.weight, 2), n({c.weight[0]}, 3)}) < good);
    CHECK(gradient_error(without, {n(c.x, 1), n(c.weight, 2)}) < good);
  }
}

TEST_CASE("max_pool2d with ragged edges, gaps and overlaps") {
  const auto pool = [](Pair kernel, PoolStride stride) {
    return [=](const Tensors& x) { return max_pool2d(x[0], kernel, {.stride = stride}); };
  };
  CHECK(gradient_error(pool({2, 2}, {}), {distinct({2, 3, 6, 8}, 1)}) < good);
  CHECK(gradient_error(pool({2, 2}, {2, 2}), {distinct({1, 2, 5, 7}, 2)}) < good);
  CHECK(gradient_error(pool({3, 2}, {1, 1}), {distinct({1, 2, 5, 7}, 3)}) < good);
  CHECK(gradient_error(pool({2, 1}, {3, 2}), {distinct({1, 1, 7, 5}, 4)}) < good);
  CHECK(gradient_error(pool({1, 1}, {1, 1}), {distinct({1, 1, 3, 3}, 5)}) < good);
}

TEST_CASE("dropout with its mask held") {
  for (const double p : {0.0, 0.3, 1.0}) {
    const auto f = [p](const Tensors& x) {
      manual_seed(4);
      return dropout(x[0], p);
    };
    CHECK(gradient_error(f, {n({3, 33}, 1)}) < good);
    const auto features = [p](const Tensors& x) {
      manual_seed(4);
      return feature_dropout(x[0], p);
    };
    CHECK(gradient_error(features, {n({3, 5, 2, 3}, 1)}) < good);
    const auto alpha = [p](const Tensors& x) {
      manual_seed(4);
      return alpha_dropout(x[0], p);
    };
    CHECK(gradient_error(alpha, {n({3, 33}, 1)}) < good);
    const auto alpha_features = [p](const Tensors& x) {
      manual_seed(4);
      return feature_alpha_dropout(x[0], p);
    };
    CHECK(gradient_error(alpha_features, {n({3, 5, 2, 3}, 1)}) < good);
  }
}

TEST_CASE("losses that are smooth near 0 have a NaN for the slope of a NaN") {
  const Tensor target = Tensor::zeros({3}, DType::f64);
  const auto slope = [&](const std::function<Tensor(const Tensor&)>& loss) {
    const Tensor x = Tensor::from(std::vector<double>{NAN, 3, 0.5}, {3}).set_requires_grad();
    loss(x).backward();
    return x.grad().to_vector<double>();
  };
  const auto huber = slope([&](const Tensor& x) { return huber_loss(x, target, Reduction::sum); });
  const auto smooth =
      slope([&](const Tensor& x) { return smooth_l1_loss(x, target, Reduction::sum, 2); });
  const auto sharp = slope([&](const Tensor& x) { return l1_loss(x, target, Reduction::sum); });
  CHECK((std::isnan(huber[0]) && huber[1] == 1 && huber[2] == 0.5));
  CHECK((std::isnan(smooth[0]) && smooth[1] == 1 && smooth[2] == 0.25));
  CHECK((sharp[0] == 0 && sharp[1] == 1 && sharp[2] == 1));  // as PyTorch's sign
}

TEST_CASE("slopes where a function has none are 0") {
  const Tensor x = Tensor::zeros({1, 1, 4}, DType::f64).set_requires_grad();
  const Tensor y = Tensor::zeros({1, 1, 4}, DType::f64).set_requires_grad();
  sum(atan2(y, x)).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>(4));
  CHECK(y.grad().to_vector<double>() == std::vector<double>(4));
  x.zero_grad();
  const Tensor pooled = lp_pool1d(x, 2, 2);
  CHECK(pooled.to_vector<double>() == std::vector<double>(2));
  sum(pooled).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>(4));
}

TEST_CASE("kl_div is NaN of a target below 0, as logarithms of probabilities are") {
  const Tensor logs = log_softmax(n({3, 5}, 1));
  CHECK(std::isnan(kl_div(logs, logs).item<double>()));
  const Tensor none = Tensor::zeros({3, 5}, DType::f64);
  CHECK(kl_div(logs, none, {.reduction = Reduction::sum}).item<double>() == 0);
}

TEST_CASE("a triplet's loss is NaN where the distance to swap for is") {
  const Tensor anchor = n({1, 3}, 1), positive = Tensor::zeros({1, 3}, DType::f64);
  const auto away = [&](const Tensor& a, const Tensor& b) {
    const Tensor far = sum(abs(a - b), {1});
    return a.same_as(positive) ? far * NAN : far;
  };
  const Tensor loss = triplet_margin_with_distance_loss(anchor, positive, n({1, 3}, 2), away,
                                                        {.margin = 100, .swap = true});
  CHECK(std::isnan(loss.item<double>()));
}

TEST_CASE("sinc of 16 bits has the angle of f32") {
  const Tensor x = Tensor::from(std::vector<float>{100.5f, -60.25f, 3, 0}, {4});
  const auto exact = sinc(x).to_vector<float>();
  const auto found = cast(sinc(cast(x, DType::f16)), DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(std::abs(found[i] - exact[i]) <= 1e-3f * std::abs(exact[i]) + 1e-7f);
  }
}

TEST_CASE("mish has a slope of 1 however large x is, and hardswish one of NaN for a NaN") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> values{20, 21, 1e10, 1e18, 1e30, -1e30};
    const Tensor x = cast(Tensor::from(values, {6}), dtype).set_requires_grad();
    sum(mish(x)).backward();
    const auto slopes = cast(x.grad(), DType::f64).to_vector<double>();
    for (std::size_t i = 0; i < 5; ++i) CHECK(slopes[i] == doctest::Approx(1).epsilon(1e-14));
    CHECK(std::abs(slopes[5]) < 1e-6);
    const Tensor none = full({20}, NAN, dtype).set_requires_grad();
    sum(hardswish(none)).backward();
    CHECK(all(isnan(none.grad())).item<bool>());
    const Tensor recorded =
        autograd::grad({sum(hardswish(none))}, {none}, {.create_graph = true})[0];
    CHECK(all(isnan(recorded)).item<bool>());
  }
}

TEST_CASE("by nearest, grid_sample's places have no slope, beside NaN either") {
  const Tensor image = full({1, 1, 1, 1}, NAN),
               grid = Tensor::zeros({1, 1, 1, 2}).set_requires_grad();
  sum(grid_sample(image, grid, {.mode = GridMode::nearest})).backward();
  CHECK(grid.grad().to_vector<float>() == std::vector<float>{0, 0});
}
