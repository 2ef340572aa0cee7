// SPDX-License-Identifier: Apache-2.0
// f32 ops, forward and backward, against the same op in f64, at odd sizes. Run once for each vector
// level that this CPU has (PEAL_CPU_LEVEL).
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace peal;
using test::distance;
using test::normal;

namespace {

using Function = std::function<Tensor(const Tensors&)>;

// The largest relative difference of f32 from f64, over output and gradients. Inputs are equal.
double f32_error(const Function& f, const std::vector<Shape>& shapes) {
  Tensors wide, narrow;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    wide.push_back(normal<double>(shapes[i], static_cast<unsigned>(i) + 1));
    narrow.push_back(normal<float>(shapes[i], static_cast<unsigned>(i) + 1));
  }
  for (const Tensor& x : wide) x.set_requires_grad();
  for (const Tensor& x : narrow) x.set_requires_grad();
  manual_seed(3);
  const Tensor reference = f(wide);
  manual_seed(3);
  const Tensor y = f(narrow);
  double worst = distance(y, reference);
  reference.backward(normal<double>(y.shape(), 50));
  y.backward(normal<float>(y.shape(), 50));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    worst = std::max(worst, distance(narrow[i].grad(), wide[i].grad()));
  }
  return worst;
}

}  // namespace

TEST_CASE("elementwise ops") {
  for (const std::int64_t n : {1, 3, 17, 33, 65, 1023}) {
    CHECK(f32_error([](const Tensors& x) { return x[0] + x[1]; }, {{n}, {n}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return x[0] - x[1]; }, {{3, n}, {n}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return x[0] * x[1]; }, {{n, 1}, {n, 5}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return x[0] / (x[1] * x[1] + 1.0); }, {{n}, {n}}) <
          1e-6);
    // The gradient of one stretched element is a sum that nearly cancels.
    CHECK(f32_error([](const Tensors& x) { return x[0] / (x[1] * x[1] + 1.0); }, {{n}, {1}}) <
          1e-5);
    CHECK(f32_error([](const Tensors& x) { return relu(x[0]); }, {{n}}) < 1e-7);
    CHECK(f32_error([](const Tensors& x) { return dropout(x[0], 0.4); }, {{n}}) < 1e-7);
    CHECK(f32_error([](const Tensors& x) { return -x[0] * 3.0 + 1.0; }, {{n}}) < 1e-6);
  }
}

TEST_CASE("reductions") {
  for (const std::int64_t n : {1, 3, 17, 65, 129}) {
    CHECK(f32_error([](const Tensors& x) { return sum(x[0]); }, {{n, 33}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return sum(x[0], {0}); }, {{n, 33}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return sum(x[0], {0}); }, {{n, 700}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return mean(x[0], {1}); }, {{3, n, 17}}) < 1e-6);
    CHECK(f32_error([](const Tensors& x) { return mean(x[0], {0, 2}); }, {{3, n, 17}}) < 1e-6);
  }
  CHECK(f32_error([](const Tensors& x) { return mean(x[0]); }, {{100001}}) < 1e-5);
}

TEST_CASE("products") {
  for (const std::int64_t m : {1, 3, 17, 65}) {
    for (const std::int64_t k : {1, 33, 129}) {
      CHECK(f32_error([](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                      {{m, k}, {17, k}, {17}}) < 2e-6);
      for (const std::int64_t n : {1, 2, 3, 4}) {
        CHECK(f32_error([](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                        {{m, k}, {n, k}, {n}}) < 2e-6);
        CHECK(f32_error([](const Tensors& x) { return linear(x[0], x[1]); }, {{m, k}, {n, k}}) <
              2e-6);
      }
      CHECK(f32_error([](const Tensors& x) { return matmul(x[0], x[1], true, true); },
                      {{k, m}, {33, k}}) < 2e-6);
      CHECK(f32_error([](const Tensors& x) { return matmul(x[0], x[1], true, false); },
                      {{k, m}, {k, 3}}) < 2e-6);
    }
  }
}

TEST_CASE("losses") {
  for (const std::int64_t rows : {1, 3, 65}) {
    std::vector<std::int64_t> classes;
    for (std::int64_t i = 0; i < rows; ++i) classes.push_back(i * 5 % 17);
    const Tensor target = Tensor::from(classes, {rows});
    for (const Reduction how : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const auto nll = [&](const Tensors& x) { return nll_loss(log_softmax(x[0]), target, how); };
      const auto entropy = [&](const Tensors& x) { return cross_entropy(x[0], target, how); };
      CHECK(f32_error(nll, {{rows, 17}}) < 1e-6);
      CHECK(f32_error(entropy, {{rows, 33}}) < 1e-6);
      CHECK(f32_error(entropy, {{rows, 5003}}) < 1e-6);
    }
  }
}

TEST_CASE("convolutions") {
  struct Case {
    std::int64_t batch, in, out, height, width, kernel;
    Conv2dOptions options;
  };
  const std::vector<Case> cases = {
      {1, 1, 1, 3, 3, 3, {}},
      {3, 1, 32, 28, 28, 3, {}},
      {2, 32, 64, 17, 13, 3, {}},
      {2, 3, 17, 33, 17, 3, {{2, 2}, {1, 1}}},
      {1, 17, 33, 9, 7, 3, {{1, 1}, {1, 1}}},
      {5, 16, 16, 8, 8, 1, {}},
      {2, 3, 8, 17, 17, 5, {{3, 2}, {2, 1}}},
      {65, 2, 3, 5, 5, 2, {{2, 1}, {0, 0}}},
      {2, 33, 16, 10, 6, 3, {{3, 4}, {1, 1}}},
      // Groups and dilation, with channels that fill oneDNN's vectors and that do not; f64 computes
      // them in another way.
      {2, 32, 32, 13, 11, 3, {.padding = {1, 1}, .groups = 32}},
      {3, 32, 64, 12, 9, 3, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}},
      {2, 17, 34, 9, 9, 3, {.groups = 17}},
      {2, 32, 16, 15, 14, 3, {.padding = {2, 3}, .dilation = {2, 3}}},
      {2,
       32,
       32,
       16,
       15,
       3,
       {.stride = {2, 2}, .padding = {2, 2}, .dilation = {3, 2}, .groups = 32}},
      {40, 64, 64, 20, 20, 3, {.padding = {2, 2}, .dilation = {2, 2}, .groups = 4}},  // in chunks
      {20, 32, 48, 11, 13, 3, {.padding = {1, 1}}},  // by Winograd, where oneDNN has it
  };
  for (const Case& c : cases) {
    CAPTURE(c.in);
    CAPTURE(c.out);
    const Shape x{c.batch, c.in, c.height, c.width},
        weight{c.out, c.in / c.options.groups, c.kernel, c.kernel};
    const auto with = [&](const Tensors& t) { return conv2d(t[0], t[1], t[2], c.options); };
    const auto without = [&](const Tensors& t) { return conv2d(t[0], t[1], {}, c.options); };
    CHECK(f32_error(with, {x, weight, {c.out}}) < 5e-6);
    CHECK(f32_error(without, {x, weight}) < 5e-6);
  }
}

TEST_CASE("a convolution gives each gradient alone as it gives all") {
  const auto grads = [](bool x_wanted, bool w_wanted, bool b_wanted) {
    const Tensors t{normal<float>({3, 5, 9, 9}, 1), normal<float>({17, 5, 3, 3}, 2),
                    normal<float>({17}, 3)};
    t[0].set_requires_grad(x_wanted);
    t[1].set_requires_grad(w_wanted);
    t[2].set_requires_grad(b_wanted);
    conv2d(t[0], t[1], t[2]).backward(normal<float>({3, 17, 7, 7}, 4));
    return Tensors{t[0].grad(), t[1].grad(), t[2].grad()};
  };
  const Tensors all = grads(true, true, true);
  CHECK(distance(grads(true, false, false)[0], all[0]) < 1e-6);
  CHECK(distance(grads(false, true, false)[1], all[1]) < 1e-6);
  CHECK(distance(grads(false, false, true)[2], all[2]) < 1e-6);
  CHECK(!grads(false, true, true)[0].defined());
}

TEST_CASE("pooling") {
  for (const std::int64_t size : {2, 3, 17, 24, 33, 66}) {
    CHECK(f32_error(
              [](const Tensors& x) {
                return max_pool2d(x[0], {2, 2});
              },
              {{2, 3, size, size}}) < 1e-7);
    CHECK(f32_error(
              [](const Tensors& x) {
                return max_pool2d(x[0], {2, 2}, {.stride = {1, 2}});
              },
              {{2, 3, size, size}}) < 1e-6);
  }
  CHECK(f32_error(
            [](const Tensors& x) {
              return max_pool2d(x[0], {3, 3}, {.stride = {2, 2}});
            },
            {{1, 3, 65, 17}}) < 1e-6);
}

TEST_CASE("batch norm of channels in blocks") {
  const auto f = [](const Tensors& x) {
    // A mean that is far from 0 beside the deviation.
    return batch_norm(x[0] + 30.0, {}, {}, x[1], x[2], {.training = true});
  };
  // Several blocks of small planes and of one channel; images in groups; a plane in parts.
  for (const Shape& x : {Shape{11, 300, 4, 4}, Shape{9, 90, 7, 7}, Shape{3, 5, 33, 32},
                         Shape{2, 3, 65, 64}, Shape{2, 2, 1, 2}}) {
    CAPTURE(concat(x));
    CHECK(f32_error(f, {x, {x[1]}, {x[1]}}) < 1e-4);
  }
  // Columns of a matrix: in a piece of each width, and fewer than a vector has lanes.
  for (const Shape& x : {Shape{131, 127}, Shape{512, 200}, Shape{70, 6}, Shape{65, 1}}) {
    CAPTURE(concat(x));
    CHECK(f32_error(f, {x, {x[1]}, {x[1]}}) < 1e-4);
  }
}

TEST_CASE("cross_entropy of rows of few classes, of which many are computed together") {
  for (const std::int64_t classes : {2, 10, 31, 32, 33, 64, 100}) {
    CAPTURE(classes);
    constexpr std::int64_t rows = 1100;
    std::vector<std::int64_t> wanted;
    for (std::int64_t i = 0; i < rows; ++i) wanted.push_back(i % 5 == 3 ? -100 : i % classes);
    const Tensor target = Tensor::from(wanted, {rows});
    for (const double smoothing : {0.0, 0.1}) {
      CHECK(f32_error(
                [=](const Tensors& x) {
                  return cross_entropy(x[0] * 4.0, target, Reduction::none, -100, smoothing);
                },
                {{rows, classes}}) < 2e-6);
    }
  }
}

TEST_CASE(
    "cross_entropy of few classes: what is no number, without end or left out is its row's alone") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from<float>({NAN, 0, 0, inf, -inf, 1, 1e30F, -1e30F, 3, 3}, {5, 2});
  const Tensor logits = x.detach();
  logits.requires_grad_();
  const Tensor target = Tensor::from<std::int64_t>({0, -100, 1, -100, 0}, {5});
  const Tensor loss = cross_entropy(logits, target, Reduction::none);
  loss.backward(ones({5}));
  const auto losses = test::doubles(loss), grads = test::doubles(logits.grad());
  CHECK(std::isnan(losses[0]));
  CHECK(losses[1] == 0);
  CHECK(losses[2] == 0);
  CHECK(losses[3] == 0);
  CHECK(losses[4] == doctest::Approx(std::log(2.0)));
  CHECK(std::vector(grads.begin() + 2, grads.end()) ==
        std::vector<double>{0, 0, 0, 0, 0, 0, -0.5, 0.5});
}

TEST_CASE("sizes that are split over threads") {
  CHECK(f32_error([](const Tensors& x) { return gelu(x[0]) + tanh(x[0]) * exp(x[0]); },
                  {{100003}}) < 1e-6);
  CHECK(f32_error([](const Tensors& x) { return softmax(x[0]); }, {{301, 257}}) < 1e-6);
  CHECK(f32_error([](const Tensors& x) { return layer_norm(x[0], {513}, x[1], x[2]); },
                  {{201, 513}, {513}, {513}}) < 5e-6);
  CHECK(
      f32_error(
          [](const Tensors& x) { return batch_norm(x[0], {}, {}, x[1], x[2], {.training = true}); },
          {{4, 7, 50, 51}, {7}, {7}}) < 5e-6);
  for (const bool causal : {false, true}) {
    CHECK(f32_error(
              [=](const Tensors& x) {
                return scaled_dot_product_attention(x[0], x[1], x[2], 4, causal);
              },
              {{2, 67, 64}, {2, 67, 64}, {2, 67, 64}}) < 5e-6);
    // more keys than a tile has
    CHECK(f32_error(
              [=](const Tensors& x) {
                return scaled_dot_product_attention(x[0], x[1], x[2], 4, causal);
              },
              {{1, 450, 64}, {1, 900, 64}, {1, 900, 64}}) < 5e-6);
  }
  // Sums that begin with a bias, in panels: many rows and few; columns that fill panels and not.
  CHECK(f32_error([](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                  {{301, 700}, {130, 700}, {130}}) < 5e-6);
  CHECK(f32_error([](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                  {{97, 64}, {320, 64}, {320}}) < 5e-6);
  // Rows a page apart, of the transposed operand and of the other.
  CHECK(f32_error([](const Tensors& x) { return matmul(x[0], x[1], true, false); },
                  {{600, 1024}, {600, 70}}) < 5e-6);
  CHECK(f32_error([](const Tensors& x) { return matmul(x[0], x[1], true, false); },
                  {{130, 203}, {130, 1024}}) < 5e-6);
  CHECK(f32_error([](const Tensors& x) { return matmul(x[0], x[1], false, true); },
                  {{9, 65, 130}, {9, 70, 130}}) < 5e-6);
  CHECK(f32_error([](const Tensors& x) { return permute(x[0], {2, 0, 1}); }, {{64, 33, 41}}) == 0);
  CHECK(f32_error(
            [](const Tensors& x) {
              return cat({x[0], slice(x[1], 1, 1, -1, 2)}, 1);
            },
            {{65, 700}, {65, 1000}}) == 0);
  CHECK(f32_error([](const Tensors& x) { return where(lt(x[0], x[1]), x[0], x[1]); },
                  {{300, 301}, {301}}) < 1e-6);
  CHECK(f32_error([](const Tensors& x) { return max(x[0], 1).values; }, {{300, 30, 11}}) == 0);
  CHECK(f32_error(
            [](const Tensors& x) {
              return avg_pool2d(x[0], {3, 3}, {.stride = {2, 2}, .padding = {1, 1}});
            },
            {{5, 7, 40, 41}}) < 1e-6);
  CHECK(f32_error([](const Tensors& x) { return smooth_l1_loss(x[0], x[1]); },
                  {{300, 301}, {300, 301}}) < 1e-6);
  const Tensor index = Tensor::from(std::vector<std::int64_t>{4, 0, 4, 2, 4, 1}, {6});
  CHECK(f32_error([&](const Tensors& x) { return index_select(x[0], 1, index); }, {{40, 5, 401}}) <
        1e-6);
}
