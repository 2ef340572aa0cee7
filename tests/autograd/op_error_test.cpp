// SPDX-License-Identifier: Apache-2.0
// What the ops of the table refuse: op, what was expected and what came.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::error_of;

namespace {

Tensor z(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); }
Tensor index(std::vector<std::int64_t> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("functions of one element and choices") {
  CHECK(error_of([] { gelu(z({2}, DType::i64)); }) ==
        "gelu: expected a floating type, got i64 [2]");
  CHECK(error_of([] { mse_loss(z({2}), z({2}, DType::f64)); }) ==
        "mse_loss: both operands must have one type, got f32 [2] and f64 [2]");
  CHECK(error_of([] { where(z({2}), z({2}), z({2})); }) ==
        "where: expected a bool condition on cpu, got f32 [2] on cpu");
  CHECK(error_of([] { where(z({3}, DType::boolean), z({2}), z({2})); }) ==
        "where: shapes [3] and [2] do not broadcast: dimension -1 is 3 and 2");
}

TEST_CASE("orders and parts") {
  CHECK(error_of([] {
          permute(z({2, 3}), {0});
        }) == "permute: expected an order of 2 dimensions for shape [2, 3], got 1");
  CHECK(error_of([] {
          permute(z({2, 3}), {1, -1});
        }) == "permute: dimension -1 of shape [2, 3] is named twice");
  CHECK(error_of([] { transpose(z({2, 3}), 0, 2); }) == "transpose: dimension 2 of shape [2, 3]");
  CHECK(error_of([] {
          narrow(z({2, 3}), 1, 1, 3);
        }) == "narrow: 3 from 1 on leave dimension 1 of shape [2, 3]");
  CHECK(error_of([] {
          select(z({2, 3}), 0, 2);
        }) == "select: index 2 along dimension 0 of shape [2, 3]");
  CHECK(error_of([] { squeeze(z({2, 3}), 2); }) == "squeeze: dimension 2 of shape [2, 3]");
  CHECK(error_of([] { slice(z({2}), 0, 0, 2, 0); }) ==
        "slice: expected a step of at least 1, got 0");
}

TEST_CASE("joining and taking apart") {
  CHECK(error_of([] { cat({}); }) == "cat: there are no tensors");
  CHECK(error_of([] {
          cat({z({2, 3}), z({2, 4})});
        }) == "cat: shapes [2, 3] and [2, 4] differ elsewhere than in dimension 0");
  CHECK(error_of([] { stack({z({2}), z({3})}); }) == "stack: shapes [2] and [3] differ");
  CHECK(error_of([] {
          split(z({2, 5}), std::vector<std::int64_t>{2, 2}, 1);
        }) == "split: sizes that add up to 4 for dimension 1 of shape [2, 5]");
}

TEST_CASE("indices") {
  CHECK(error_of([] {
          embedding(index({0, 7}), z({7, 2}));
        }) == "embedding: index 7 is outside of dimension 0 of shape [7, 2]");
  CHECK(error_of([] {
          index_select(z({2, 3}), 1, z({2}));
        }) == "index_select: expected an i64 index on cpu, got f32 [2] on cpu");
  CHECK(error_of([] {
          gather(z({2, 3}), 1, index({0, 1}));
        }) ==
        "gather: an index of shape [2] is larger than shape [2, 3] elsewhere than in dimension 1");
}

TEST_CASE("products, attention and normalisation") {
  CHECK(error_of([] {
          matmul(z({2, 3, 4}), z({3, 4, 5}));
        }) == "matmul: shapes [2] and [3] do not broadcast: dimension -1 is 2 and 3");
  CHECK(error_of([] {
          feed_forward(z({2, 3}), z({8, 3}), z({8}), z({4, 7}), z({4}));
        }) == "feed_forward: input of shape [2, 8] does not fit weight [out, in] = [4, 7]");
  CHECK(error_of([] {
          scaled_dot_product_attention(z({1, 2, 6}), z({1, 2, 6}), z({1, 2, 6}), 4);
        }) == "scaled_dot_product_attention: 4 heads do not divide shapes [1, 2, 6] and [1, 2, 6]");
  CHECK(error_of([] {
          self_attention(z({1, 2, 6}), 4);
        }) == "self_attention: expected qkv [B, T, 3 H D] for H = 4, got shape [1, 2, 6]");
  CHECK(error_of([] {
          layer_norm(z({2, 3}), {2});
        }) == "layer_norm: shape [2, 3] does not end in [2]");
  CHECK(error_of([] {
          batch_norm(z({2, 3}), z({2}), z({2}));
        }) ==
        "batch_norm: expected weight, bias and statistics of shape [3] for input [2, 3], got [2]");
  CHECK(error_of([] {
          batch_norm(z({1, 3}), {}, {}, {}, {}, {.training = true});
        }) == "batch_norm: expected more than one value a channel to train with, got shape [1, 3]");
}

TEST_CASE("images, extremes and losses") {
  CHECK(error_of([] {
          conv2d(z({1, 4, 5, 5}), z({3, 2, 3, 3}), {}, {.groups = 2});
        }) ==
        "conv2d: expected an input [N, C, H, W] and a weight [O, C / groups, kH, kW] with 2 groups "
        "that divide C and O, got [1, 4, 5, 5] and [3, 2, 3, 3]");
  CHECK(
      error_of([] {
        conv2d(z({1, 1, 4, 5}), z({1, 1, 3, 3}), {}, {.dilation = {2, 1}});
      }) ==
      "conv2d: a kernel of shape [1, 1, 3, 3] does not fit into input [1, 1, 4, 5] with padding 0");
  CHECK(error_of([] {
          avg_pool2d(z({1, 1, 2, 5}), {3, 3});
        }) ==
        "avg_pool2d: a window of 3 x 3 with stride 3 and padding 0 does not fit into shape "
        "[1, 1, 2, 5]");
  CHECK(error_of([] {
          max(z({2, 0}), 1);
        }) == "max: no elements along dimension 1 of shape [2, 0]");
  CHECK(error_of([] { mse_loss(z({2}), z({3})); }) ==
        "mse_loss: expected a target of shape [2], got [3]");
  CHECK(error_of([] {
          cross_entropy(z({1, 2}), index({0}), Reduction::mean, -100, 1.5);
        }) == "cross_entropy: expected a label smoothing in [0, 1], got 1.5");
}

TEST_CASE("grids, forms and distances") {
  CHECK(error_of([] {
          grid_sample(z({2, 3, 4}), z({2, 4, 4, 2}));
        }) ==
        "grid_sample: expected an image [N, C, H, W] with H and W above 0, got shape [2, 3, 4]");
  CHECK(error_of([] {
          grid_sample(z({2, 3, 4, 4}), z({1, 4, 4, 2}));
        }) ==
        "grid_sample: expected a grid [2, h, w, 2] for an image of shape [2, 3, 4, 4], got shape "
        "[1, 4, 4, 2]");
  CHECK(error_of([] {
          grid_sample(z({1, 1, 2, 2}), z({1, 1, 1, 2}, DType::f64));
        }) ==
        "grid_sample: both operands must have one type, got f32 [1, 1, 2, 2] and f64 [1, 1, 1, 2]");
  CHECK(error_of([] {
          affine_grid(z({2, 3}), {2, 1, 4, 4});
        }) == "affine_grid: expected a theta [N, 2, 3], got shape [2, 3]");
  CHECK(error_of([] {
          affine_grid(z({2, 2, 3}), {1, 1, 4, 4});
        }) == "affine_grid: expected a size [2, C, H, W] with H and W above 0, got [1, 1, 4, 4]");
  CHECK(error_of([] {
          bilinear(z({4, 5}), z({4, 3}), z({2, 3, 5}));
        }) ==
        "bilinear: expected [..., 3] and [..., 5] for a weight of shape [2, 3, 5], got shapes "
        "[4, 5] and [4, 3]");
  CHECK(error_of([] {
          bilinear(z({4, 5}), z({4, 3}), z({2, 5, 3}), z({3}));
        }) == "bilinear: expected a bias [2], got shape [3]");
  CHECK(error_of([] {
          pdist(z({2, 3, 4}));
        }) == "pdist: expected rows [N, D], got shape [2, 3, 4]");
  CHECK(error_of([] { pdist(z({2, 3}), -1); }) == "pdist: expected a norm of p >= 0, got -1");
}

TEST_CASE("a place that is NaN reads NaN, and one that is infinite what is far away") {
  const Tensor x = full({1, 2, 3, 3}, 5.0);
  const Tensor grid = Tensor::from(
      std::vector<float>{NAN, 0, INFINITY, 0, 0, -INFINITY, 1e30f, -1e30f, 0, 0}, {1, 1, 5, 2});
  const auto read = [&](const GridSampleOptions& options) {
    const std::vector<float> all = grid_sample(x, grid, options).to_vector<float>();
    CHECK(std::isnan(all[0]));
    return std::vector<float>(all.begin() + 1, all.begin() + 5);
  };
  for (const GridMode mode : {GridMode::bilinear, GridMode::nearest, GridMode::bicubic}) {
    CHECK(read({.mode = mode}) == std::vector<float>{0, 0, 0, 5});
    CHECK(read({.mode = mode, .padding_mode = GridPadding::border}) ==
          std::vector<float>{5, 5, 5, 5});
  }
  CHECK(grid_sample(x, Tensor::zeros({1, 0, 4, 2})).shape() == Shape{1, 2, 0, 4});
  CHECK(grid_sample(Tensor::zeros({0, 2, 3, 3}), Tensor::zeros({0, 4, 4, 2})).shape() ==
        Shape{0, 2, 4, 4});
  CHECK(pdist(z({1, 3})).shape() == Shape{0});
}

TEST_CASE("types: integers are compared, moved and joined; two bytes are stored") {
  const Tensor i = Tensor::from(std::vector<std::int64_t>{3, 1, 2, 5, 4, 6}, {2, 3});
  CHECK(transpose(i, 0, 1).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{3, 5, 1, 4, 2, 6});
  CHECK(max(i, 1).values.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 6});
  CHECK(min(i, 0).indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0, 0});
  CHECK(sum(cast(gt(i, 2), DType::i64)).item<std::int64_t>() == 4);
  CHECK(cast(Tensor::from(std::vector<float>{-1.5f, 0, 2.75f}, {3}), DType::i32)
            .to_vector<std::int32_t>() == std::vector<std::int32_t>{-1, 0, 2});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = test::normal<float>({3, 17}, 1);
    const Tensor narrow = cast(x, dtype);
    const double rounding = dtype == DType::f16 ? 1e-3 : 1e-2;
    CHECK(test::distance(cast(gelu(narrow), DType::f32), gelu(x)) < rounding);
    CHECK(test::distance(cast(transpose(cat({narrow, narrow}), 0, 1), DType::f32),
                         transpose(cat({x, x}), 0, 1)) < rounding);
  }
}

TEST_CASE("a NaN is the largest and the smallest, and clamp lets it through") {
  const Tensor x = Tensor::from(std::vector<float>{1, NAN, 3}, {3});
  CHECK(argmax(x, 0).item<std::int64_t>() == 1);
  CHECK(argmin(x, 0).item<std::int64_t>() == 1);
  CHECK(std::isnan(clamp(x, 0, 2).data<float>()[1]));
  const Tensor wild = Tensor::from(std::vector<float>{-INFINITY, -200, 200, INFINITY, NAN}, {5});
  const std::vector<float> e = exp(wild).to_vector<float>();
  CHECK((e[0] == 0 && e[1] == 0 && e[2] == INFINITY && e[3] == INFINITY && std::isnan(e[4])));
  const std::vector<float> t = tanh(wild).to_vector<float>();
  CHECK((t[0] == -1 && t[1] == -1 && t[2] == 1 && t[3] == 1 && std::isnan(t[4])));
  const std::vector<float> s = sigmoid(wild).to_vector<float>();
  CHECK((s[0] == 0 && s[2] == 1 && s[3] == 1 && std::isnan(s[4])));
}

TEST_CASE("a largest that is a NaN has its gradient where the NaN is") {
  using Floats = std::vector<float>;
  for (const auto& largest : {+[](const Tensor& x) { return max(x); },
                              +[](const Tensor& x) { return amin(x, {0}, false); }}) {
    const Tensor x = Tensor::from(Floats{1, NAN, 3, NAN}, {4}).set_requires_grad();
    largest(x).backward();
    CHECK(x.grad().to_vector<float>() == Floats{0, 0.5, 0, 0.5});
  }
}

TEST_CASE("what a pad by nothing returns is no view") {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  for (const std::vector<std::int64_t>& pads :
       {std::vector<std::int64_t>{0, 0}, std::vector<std::int64_t>{0, -1}}) {
    const Tensor y = pad(x, pads);
    y.zero_();
    CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3});
  }
}

TEST_CASE("what stands behind a sequence's end counts for nothing, be it a NaN") {
  const Tensor lengths = Tensor::from<std::int64_t>({2, 3}, {2});
  const RecurrentWeights weights{test::normal<double>({8, 2}, 1), test::normal<double>({8, 2}, 2),
                                 test::normal<double>({8}, 3), test::normal<double>({8}, 4)};
  Tensors first;
  for (const double behind : {0.0, static_cast<double>(NAN)}) {
    Tensor x = test::normal<double>({3, 2, 2}, 5);
    x.data<double>()[8] = x.data<double>()[9] = behind;  // the first sequence's last step
    x.set_requires_grad();
    const Tensor ih = weights.ih.clone().set_requires_grad();
    const RecurrentResult made =
        lstm(x, {}, {}, {ih, weights.hh, weights.bias_ih, weights.bias_hh}, {.lengths = lengths});
    (sum(made.y) + sum(made.c)).backward();
    const Tensors all{made.y.detach(), made.h.detach(), x.grad(), ih.grad()};
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(equal(all[i], first[i]));
  }
}

TEST_CASE("an infinity counts in what an antialiased image is made of there, and nowhere else") {
  const Tensor x = Tensor::from(std::vector<double>{1, 1, INFINITY, 1, 1, 1}, {1, 1, 1, 6});
  const InterpolateOptions options{
      .size = {1, 4}, .mode = InterpolateMode::bilinear, .antialias = true};
  const std::vector<double> y = interpolate(x, options).to_vector<double>();
  CHECK(y[0] == doctest::Approx(1));  // of two, where others are of three
  CHECK(y[1] == INFINITY);
  CHECK(y[2] == INFINITY);
  CHECK(y[3] == doctest::Approx(1));
}

TEST_CASE("a saved input that is overwritten is noticed") {
  const Tensor x = test::normal<float>({3}, 1);
  x.set_requires_grad();
  const Tensor y = sum(log(x * x));
  const Tensor kept = x * 1.0;
  const Tensor other = sum(abs(kept));
  mul_(kept.detach(), 2);
  y.backward();
  CHECK(error_of([&] { other.backward(); }).find("has since been written in place") !=
        std::string::npos);
}

TEST_CASE("integers are not cut off silently") {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{1, 2, 3}, {3});
  CHECK_THROWS_WITH_AS(lt(cast(x, DType::u8), 256), "lt: 256 is not a value of u8", Error);
  CHECK_THROWS_AS(mul_(x, 0.5), Error);
  CHECK_THROWS_AS(add_(x, x, 0.5), Error);
  CHECK_THROWS_AS(full({2}, 2.5, DType::i64), Error);
  CHECK_THROWS_AS(full({2}, 256, DType::u8), Error);
  CHECK_THROWS_AS(fill_(x, 9223372036854775808.0), Error);
  CHECK(x.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 3});
  CHECK(full({1}, 255, DType::u8).item<int>() == 255);
}

TEST_CASE("log_softmax keeps small differences beside large logits") {
  const Tensor y = log_softmax(Tensor::from(std::vector<float>{1e8f, 1e8f, 1000, 999}, {2, 2}));
  CHECK(y.data<float>()[0] == doctest::Approx(-0.69314718).epsilon(1e-6));
  CHECK(y.data<float>()[2] == doctest::Approx(-0.31326169).epsilon(1e-6));
}

TEST_CASE("draws refuse what is no probability or deviation") {
  for (const double p : {-0.25, 1.25, double(NAN)}) {
    CHECK(error_of([&] {
            bernoulli(full({3}, p));
          }).starts_with("bernoulli: expected probabilities from 0 to 1"));
  }
  for (const double deviation : {-0.5, double(NAN)}) {
    CHECK(error_of([&] {
            normal(zeros({3}), full({3}, deviation));
          }).starts_with("normal: expected deviations from 0 to inf"));
  }
  CHECK(bernoulli(Tensor::zeros({0})).numel() == 0);
}
