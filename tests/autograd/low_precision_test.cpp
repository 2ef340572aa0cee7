// SPDX-License-Identifier: Apache-2.0
// What f16 and bf16 need beyond agreeing with f64 (op_table_test.cpp): sums that do not lose small
// terms, results at the ends of the range, statistics in f32, parameters in f32 beside them.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

const DType both[] = {DType::f16, DType::bf16};

// In f16 with f32 sums; in f16 alone the sum would stay at 2048.
TEST_CASE("sums are of f32") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    const Tensor x = full({4096}, 0.25, dtype).set_requires_grad();
    CHECK(sum(x).item<float>() == 1024);
    CHECK(mean(x).item<float>() == 0.25);
    CHECK(doubles(sum(reshape(x, {64, 64}), {0})) == std::vector<double>(64, 16));
    const Tensor ones_row = full({1, 4096}, 1, dtype);
    CHECK(matmul(ones_row, ones_row, false, true).item<float>() == 4096);
    // A gradient that is a sum over equal indices.
    const Tensor weight = full({2, 1}, 1, dtype).set_requires_grad();
    const Tensor index = Tensor::zeros({4096}, DType::i64);
    embedding(index, weight).backward(full({4096, 1}, 0.25, dtype));
    CHECK(doubles(weight.grad()) == std::vector<double>{1024, 0});
    const Tensor one = full({1, 3}, 1, dtype).set_requires_grad();
    gather(one, 1, Tensor::zeros({1, 4096}, DType::i64)).backward(full({1, 4096}, 0.25, dtype));
    CHECK(doubles(one.grad()) == std::vector<double>{1024, 0, 0});
  }
}

TEST_CASE("results are finite at the ends of the range") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    const double largest = dtype == DType::f16 ? 65504 : 0x1.fep127;
    const Tensor x = full({2, 3}, largest, dtype);
    const auto finite = [](const Tensor& t) {
      for (const double value : doubles(t)) {
        if (!std::isfinite(value)) return false;
      }
      return true;
    };
    CHECK(finite(mean(x)));
    CHECK(finite(softmax(x)));
    CHECK(finite(log_softmax(x)));
    CHECK(finite(tanh(x)));
    CHECK(finite(sigmoid(-x)));
    CHECK(finite(gelu(x)));
    CHECK(finite(cross_entropy(x, Tensor::zeros({2}, DType::i64))));
    CHECK(finite(binary_cross_entropy_with_logits(x, full({2, 3}, 1, dtype))));
    CHECK(finite(smooth_l1_loss(x, full({2, 3}, largest / 2, dtype))));
    CHECK(finite(avg_pool2d(reshape(x, {1, 1, 2, 3}), {2, 2})));
    CHECK(finite(max_pool2d(reshape(x, {1, 1, 2, 3}), {2, 2})));
    CHECK(finite(dropout(x * 0.25, 0.5)));
    // Squares of these are past f16.
    const Tensor wide = Tensor::from(std::vector<float>{-60000, 0, 30000, 60000}, {1, 4});
    CHECK(finite(layer_norm(cast(wide, dtype), {4})));
    CHECK(
        finite(batch_norm(cast(reshape(wide, {4, 1}), dtype), {}, {}, {}, {}, {.training = true})));
    // What f32 itself cannot hold is infinite, and no error.
    CHECK(std::isinf(sum(x).item<float>()));
    // The smallest numbers are not flushed to zero.
    const double least = dtype == DType::f16 ? 0x1p-24 : 0x1p-133;
    CHECK((full({1}, least, dtype) * 1.0).item<double>() == least);
    CHECK(cast(full({1}, least, dtype), DType::f32).item<double>() == least);
  }
}

TEST_CASE("dropout keeps the same elements in every type") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    const Tensor wide = normal<float>({513}, 3);
    const Tensor x = cast(wide, dtype).set_requires_grad();
    manual_seed(7);
    const Tensor y = dropout(x, 0.25);
    manual_seed(7);
    const Tensor reference = dropout(cast(x.detach(), DType::f32), 0.25);
    CHECK(y.dtype() == dtype);
    CHECK(distance(y, cast(reference, dtype)) == 0);
    y.backward(full({513}, 0.75, dtype));
    for (std::size_t i = 0; i < 513; ++i) {
      CHECK((doubles(x.grad())[i] == 1) == (doubles(y)[i] != 0));
    }
  }
}

TEST_CASE("normalisations take f32 parameters and statistics beside x in low precision") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    const Tensor x = cast(normal<float>({6, 5}, 1), dtype).set_requires_grad();
    const Tensor reference_x = cast(x.detach(), DType::f64).set_requires_grad();
    const Tensor weight = normal<float>({5}, 2).set_requires_grad();
    const Tensor reference_weight = cast(weight.detach(), DType::f64).set_requires_grad();
    const Tensor bias = normal<float>({5}, 3).set_requires_grad();
    const Tensor reference_bias = cast(bias.detach(), DType::f64).set_requires_grad();
    const Tensor mean = Tensor::zeros({5}), variance = ones({5});
    const Tensor reference_mean = Tensor::zeros({5}, DType::f64);
    const Tensor reference_variance = ones({5}, DType::f64);
    const auto check = [&](const Tensor& y, const Tensor& reference) {
      CHECK(y.dtype() == dtype);
      const double bound = dtype == DType::f16 ? 0x1p-9 : 0x1p-6;
      CHECK(distance(y, reference) < bound);
      const Tensor seed = cast(normal<float>({6, 5}, 4), dtype);
      for (const Tensor& leaf : {x, weight, bias, reference_x, reference_weight, reference_bias}) {
        leaf.zero_grad();
      }
      y.backward(seed);
      reference.backward(cast(seed, DType::f64));
      CHECK(x.grad().dtype() == dtype);
      CHECK(weight.grad().dtype() == DType::f32);
      CHECK(bias.grad().dtype() == DType::f32);
      CHECK(distance(x.grad(), reference_x.grad()) < bound);
      CHECK(distance(weight.grad(), reference_weight.grad()) < 1e-5);
      CHECK(distance(bias.grad(), reference_bias.grad()) < 1e-5);
    };
    check(layer_norm(x, {5}, weight, bias),
          layer_norm(reference_x, {5}, reference_weight, reference_bias));
    const BatchNormOptions training{.training = true};
    check(batch_norm(x, mean, variance, weight, bias, training),
          batch_norm(reference_x, reference_mean, reference_variance, reference_weight,
                     reference_bias, training));
    CHECK(distance(mean, reference_mean) < 1e-6);
    CHECK(distance(variance, reference_variance) < 1e-6);
    check(batch_norm(x, mean, variance, weight, bias),
          batch_norm(reference_x, reference_mean, reference_variance, reference_weight,
                     reference_bias));
    // Running statistics in low precision are moved in f32 and rounded once.
    const Tensor narrow_mean = Tensor::zeros({5}, dtype), narrow_variance = full({5}, 1, dtype);
    batch_norm(x, narrow_mean, narrow_variance, {}, {}, training);
    CHECK(distance(narrow_mean, cast(mean, dtype)) == 0);
  }
}

// Past the sizes that stay on one thread and in one chunk of a batch; bf16 where the CPU multiplies
// it itself, and widened at the lower vector levels.
TEST_CASE("large operands") {
  const std::vector<std::pair<std::vector<Shape>, std::function<Tensor(const Tensors&)>>> cases = {
      {{{40, 16, 26, 26}, {32, 16, 3, 3}, {32}},
       [](const Tensors& x) { return conv2d(x[0], x[1], x[2]); }},
      {{{35, 3, 33, 31}, {17, 3, 3, 3}},
       [](const Tensors& x) {
         return conv2d(x[0], x[1], {}, {.stride = {2, 1}, .padding = {1, 1}});
       }},
      {{{3, 65, 130}, {3, 130, 33}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
      {{{3, 65, 130}, {33, 130}}, [](const Tensors& x) { return matmul(x[0], x[1], false, true); }},
      {{{130, 65}, {130, 33}}, [](const Tensors& x) { return matmul(x[0], x[1], true); }},
      {{{64, 300}, {257, 300}, {257}}, [](const Tensors& x) { return linear(x[0], x[1], x[2]); }},
      // Sums in several parts, and more columns than are laid out at once; an odd sum behind.
      {{{67, 2100}, {1100, 2100}, {1100}},
       [](const Tensors& x) { return linear(x[0], x[1], x[2]); }},
      {{{131, 202}, {131, 70}}, [](const Tensors& x) { return matmul(x[0], x[1], true); }},
      {{{2, 67, 64}, {2, 67, 64}, {2, 67, 64}},
       [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], 4, true); }},
      {{{1, 67, 64}, {1, 900, 64}, {1, 900, 64}},
       [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], 4); }},
      // Whole pairs of elements and of keys; heads wider than a panel, and queries other than keys.
      {{{2, 70, 210}}, [](const Tensors& x) { return self_attention(x[0], 5, true); }},
      {{{1, 134, 396}}, [](const Tensors& x) { return self_attention(x[0], 2); }},
      {{{2, 67, 64}, {2, 158, 64}, {2, 158, 64}},
       [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], 2, true); }},
      {{{3, 91, 20}, {3, 30, 20}, {3, 30, 20}},
       [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], 2, true); }},
      {{{1, 1, 64}, {1, 6, 64}, {1, 6, 64}},
       [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], 4); }},
      {{{1, 67, 64}, {1, 70, 64}, {1, 70, 64}, {67, 70}},
       [](const Tensors& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3].detach()}) +
                mean(x[3]);
       }},
      {{{301, 257}}, [](const Tensors& x) { return softmax(x[0]); }},
      {{{201, 513}, {513}, {513}},
       [](const Tensors& x) { return layer_norm(x[0], {513}, x[1], x[2]); }},
      {{{300, 301}, {301}}, [](const Tensors& x) { return relu(x[0] + x[1]) * x[1]; }},
      {{{300, 301}}, [](const Tensors& x) { return gelu(x[0]); }},
      {{{7, 5, 83, 61}}, [](const Tensors& x) { return max_pool2d(x[0], 2); }},
      {{{7, 5, 33, 61}}, [](const Tensors& x) { return max_pool2d(x[0], 3, {.padding = 1}); }},
      // Several images at once, and a plane in parts.
      {{{21, 5, 7, 9}, {5}, {5}},
       [](const Tensors& x) { return batch_norm(x[0], {}, {}, x[1], x[2], {.training = true}); }},
      {{{9, 3, 97, 83}, {3}, {3}},
       [](const Tensors& x) { return batch_norm(x[0], {}, {}, x[1], x[2], {.training = true}); }},
      // More channels than a block has, of planes that are one vector and not.
      {{{5, 300, 4, 4}, {300}, {300}},
       [](const Tensors& x) { return batch_norm(x[0], {}, {}, x[1], x[2], {.training = true}); }},
      {{{6, 33, 3, 7}, {33}, {33}},
       [](const Tensors& x) {
         return batch_norm(x[0], full({33}, 0.25), full({33}, 1.5), x[1], x[2]);
       }},
      {{{40, 32, 13, 9}, {48, 32, 3, 3}, {48}},
       [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); }},
      // By Winograd's algorithm: rows of tiles that fill a panel and that do not, of one image and
      // of many, a last block that is not full, and results past those that are summed at once.
      {{{3, 18, 6, 40}, {50, 18, 3, 3}, {50}},
       [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); }},
      {{{19, 34, 4, 4}, {16, 34, 3, 3}},
       [](const Tensors& x) { return conv2d(x[0], x[1], {}, {.padding = 1}); }},
      {{{4, 16, 32, 32}, {64, 16, 3, 3}},
       [](const Tensors& x) { return conv2d(x[0], x[1], {}, {.padding = 1}); }},
      {{{5, 66, 8, 10}, {18, 66, 3, 3}, {18}},
       [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.padding = 2}); }},
      {{{2, 16, 4, 80}, {16, 16, 3, 3}}, [](const Tensors& x) { return conv2d(x[0], x[1]); }},
  };
  for (const DType dtype : both) {
    for (std::size_t c = 0; c < cases.size(); ++c) {
      CAPTURE(concat(dtype));
      CAPTURE(c);
      Tensors narrow, wide;
      for (const Shape& shape : cases[c].first) {
        const auto seed = static_cast<unsigned>(narrow.size()) + 1;
        narrow.push_back(cast(normal<float>(shape, seed), dtype).set_requires_grad());
        wide.push_back(cast(narrow.back().detach(), DType::f32).set_requires_grad());
      }
      const Tensor y = cases[c].second(narrow), reference = cases[c].second(wide);
      const double bound = dtype == DType::f16 ? 0x1p-9 : 0x1p-6;
      CHECK(distance(y, reference) < bound);
      const Tensor seed = cast(normal<float>(y.shape(), 9), dtype);
      y.backward(seed);
      reference.backward(cast(seed, DType::f32));
      for (std::size_t i = 0; i < wide.size(); ++i) {
        CAPTURE(i);
        CHECK(distance(narrow[i].grad(), wide[i].grad()) < bound);
      }
    }
  }
}

// Queries and what they see odd in number, so that the last row that is seen has no partner.
TEST_CASE("keys and values that no query sees count for nothing, be they a NaN") {
  for (const DType dtype : both) {
    CAPTURE(concat(dtype));
    Tensors first;
    for (const float behind : {0.0F, NAN}) {
      Tensors x;
      for (const std::int64_t tokens : {67, 158, 158}) {
        const Tensor all = normal<float>({1, tokens, 64}, static_cast<unsigned>(x.size()) + 1);
        std::fill(all.data<float>() + 67 * 64, all.data<float>() + all.numel(), behind);
        x.push_back(cast(all, dtype).set_requires_grad());
      }
      const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], 2, true);
      y.backward(cast(normal<float>(y.shape(), 9), dtype));
      const Tensors found{y.detach(), x[0].grad(), x[1].grad(), x[2].grad()};
      if (first.empty()) first = found;
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(equal(found[i], first[i]));
    }
  }
}

TEST_CASE("of two types arithmetic takes the wider, and without autocast layers take neither") {
  const Tensor wide = ones({3, 3}), narrow = ones({3, 3}, DType::bf16);
  CHECK((wide + narrow).dtype() == DType::f32);
  CHECK(error_of([&] { linear(wide, narrow); }).find("f32 [3, 3] and bf16 [3, 3]") !=
        std::string::npos);
  CHECK(error_of([&] { layer_norm(wide, {3}, ones({3}, DType::bf16)); }) != "nothing");
}

}  // namespace
