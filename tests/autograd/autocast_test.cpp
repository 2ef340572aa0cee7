// SPDX-License-Identifier: Apache-2.0
// Autocast: which op computes in what, gradients in the type of their parameter, and the guard.
#include <peal/autograd/autocast.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <thread>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

const DType both[] = {DType::f16, DType::bf16};

struct Case {
  const char* name;
  DType expected;
  std::function<Tensor()> op;
};

TEST_CASE("each op computes in the type of its list") {
  for (const DType low : both) {
    const Tensor wide = normal<float>({4, 4}, 1), narrow = cast(wide, low);
    const Tensor image = reshape(wide, {1, 1, 4, 4}), kernel = ones({2, 1, 2, 2});
    const Tensor sequence = reshape(narrow, {1, 4, 4});
    const Tensor target = Tensor::zeros({4}, DType::i64);
    const DType f32 = DType::f32;
    const Case cases[] = {
        {"matmul", low, [&] { return matmul(wide, wide); }},
        {"matmul of both", low, [&] { return matmul(narrow, wide); }},
        {"batched", low,
         [&] {
           return matmul(sequence, reshape(wide, {1, 4, 4}));
         }},
        {"mm of both", low, [&] { return mm(narrow, wide); }},
        {"mv of both", low, [&] { return mv(wide, ones({4}, low)); }},
        {"addmm of both", low, [&] { return addmm(wide, narrow, wide); }},
        {"einsum of both", low,
         [&] {
           return einsum("ij,kj->ik", {narrow, wide});
         }},
        {"tensordot of both", low, [&] { return tensordot(wide, narrow, 1); }},
        {"cdist", f32, [&] { return cdist(narrow, wide); }},
        {"linear", low, [&] { return linear(wide, wide, ones({4})); }},
        {"linear of low x", low, [&] { return linear(narrow, wide); }},
        {"conv2d", low, [&] { return conv2d(image, kernel, ones({2})); }},
        {"conv1d", low,
         [&] {
           return conv1d(reshape(wide, {1, 4, 4}), ones({2, 4, 2}));
         }},
        {"conv3d", low,
         [&] {
           return conv3d(reshape(wide, {1, 1, 1, 4, 4}), ones({2, 1, 1, 2, 2}));
         }},
        {"conv_transpose1d", low,
         [&] {
           return conv_transpose1d(reshape(wide, {1, 4, 4}), ones({4, 2, 2}));
         }},
        {"conv_transpose2d", low,
         [&] {
           return conv_transpose2d(image, ones({1, 2, 2, 2}));
         }},
        {"conv_transpose3d", low,
         [&] {
           return conv_transpose3d(reshape(wide, {1, 1, 1, 4, 4}), ones({1, 2, 1, 2, 2}));
         }},
        {"addmv of both", low, [&] { return addmv(ones({4}), narrow, ones({4})); }},
        {"bmm of both", low, [&] { return bmm(sequence, cast(sequence, f32)); }},
        {"baddbmm of both", low,
         [&] { return baddbmm(cast(sequence, f32), sequence, cast(sequence, f32)); }},
        {"feed_forward", low, [&] { return feed_forward(wide, wide, {}, wide, {}); }},
        {"lstm", low,
         [&] {
           return lstm(reshape(wide, {2, 2, 4}), {}, {}, {ones({16, 4}), ones({16, 4})}).y;
         }},
        {"dot of both", f32, [&] { return dot(ones({4}, low), ones({4})); }},
        {"bilinear", f32,
         [&] {
           return bilinear(wide, wide, ones({2, 4, 4}));
         }},
        {"bilinear of both", f32,
         [&] {
           return bilinear(narrow, wide, ones({2, 4, 4}));
         }},
        {"bilinear of low", low,
         [&] {
           return bilinear(narrow, narrow, ones({2, 4, 4}, low));
         }},
        {"grid_sample of both", f32,
         [&] {
           return grid_sample(cast(image, low), reshape(wide, {1, 2, 4, 2}));
         }},
        {"affine_grid", f32,
         [&] {
           return affine_grid(reshape(slice(wide, 0, 0, 3), {2, 2, 3}), {2, 1, 2, 2});
         }},
        {"attention", low,
         [&] { return scaled_dot_product_attention(sequence, sequence, cast(sequence, f32), 2); }},
        {"self_attention", low,
         [&] {
           return self_attention(cat({sequence, cast(sequence, f32), sequence}, -1), 2);
         }},
        {"exp", f32, [&] { return exp(narrow); }},
        {"log", f32, [&] { return log(narrow); }},
        {"pow", f32, [&] { return pow(narrow, 2); }},
        {"erfinv", f32, [&] { return erfinv(narrow); }},
        {"lgamma", low, [&] { return lgamma(narrow); }},
        {"logit", f32, [&] { return logit(sigmoid(narrow)); }},
        {"softplus", f32, [&] { return softplus(narrow); }},
        {"cumprod", f32, [&] { return cumprod(narrow, 0); }},
        {"gumbel_softmax", f32, [&] { return gumbel_softmax(narrow); }},
        {"group_norm", f32, [&] { return group_norm(narrow, 2); }},
        {"rms_norm", f32, [&] { return rms_norm(narrow, {4}); }},
        {"pdist", f32, [&] { return pdist(narrow); }},
        {"pairwise_distance", f32, [&] { return pairwise_distance(narrow, wide); }},
        {"normalize", f32, [&] { return normalize(narrow); }},
        {"sum", f32, [&] { return sum(narrow); }},
        {"mean", f32, [&] { return mean(narrow, {1}); }},
        {"softmax", f32, [&] { return softmax(narrow, 0); }},
        {"log_softmax", f32, [&] { return log_softmax(narrow); }},
        {"layer_norm", f32, [&] { return layer_norm(narrow, {4}, ones({4}), ones({4})); }},
        {"cross_entropy", f32, [&] { return cross_entropy(narrow, target); }},
        {"nll_loss", f32, [&] { return nll_loss(narrow, target); }},
        {"cross_entropy by weight", f32,
         [&] { return cross_entropy(narrow, target, {.weight = cast(ones({4}), low)}); }},
        {"cross_entropy of probabilities", f32,
         [&] { return cross_entropy(narrow, softmax(narrow)); }},
        {"mse_loss", f32, [&] { return mse_loss(narrow, wide); }},
        {"mse_loss by weight", f32, [&] { return mse_loss(narrow, wide, narrow); }},
        {"l1_loss", f32, [&] { return l1_loss(narrow, wide); }},
        {"huber_loss", f32, [&] { return huber_loss(wide, narrow); }},
        {"bce of probabilities", f32,
         [&] { return binary_cross_entropy(sigmoid(narrow), sigmoid(wide)); }},
        {"kl_div", f32, [&] { return kl_div(narrow, sigmoid(wide)); }},
        {"cosine_similarity", f32, [&] { return cosine_similarity(narrow, wide); }},
        {"triplet_margin_loss", f32, [&] { return triplet_margin_loss(narrow, wide, narrow); }},
        {"smooth_l1_loss", f32, [&] { return smooth_l1_loss(wide, narrow); }},
        {"bce", f32, [&] { return binary_cross_entropy_with_logits(narrow, sigmoid(narrow)); }},
        {"relu", low, [&] { return relu(narrow); }},
        {"relu of f32", f32, [&] { return relu(wide); }},
        {"max_pool2d", low,
         [&] {
           return max_pool2d(cast(image, low), {2, 2});
         }},
        {"batch_norm", low,
         [&] { return batch_norm(narrow, {}, {}, ones({4}), ones({4}), {.training = true}); }},
        {"add", f32, [&] { return narrow + wide; }},
        {"sub", f32, [&] { return wide - narrow; }},
        {"mul", f32, [&] { return narrow * wide; }},
        {"div", f32, [&] { return wide / narrow; }},
        {"add of low", low, [&] { return narrow + narrow; }},
        {"where", f32, [&] { return where(lt(narrow, wide), narrow, wide); }},
        {"cat", f32,
         [&] {
           return cat({narrow, wide, narrow});
         }},
        {"cat of f32 first", f32,
         [&] {
           return cat({wide, narrow});
         }},
        {"stack", f32,
         [&] {
           return stack({narrow, wide});
         }},
        {"f64 is left alone", DType::f64,
         [&] { return matmul(cast(wide, DType::f64), cast(wide, DType::f64)); }},
        {"f64 is the widest", DType::f64,
         [&] {
           return cat({narrow, cast(wide, DType::f64)});
         }},
    };
    for (const Case& each : cases) {
      CAPTURE(each.name);
      const Autocast guard(low);
      CHECK(concat(each.op().dtype()) == concat(each.expected));
    }
  }
  const Tensor half = ones({3}, DType::f16), brain = ones({3}, DType::bf16);
  const Autocast guard;
  CHECK(concat((half + brain).dtype()) == "f32");
  CHECK(concat(cat({half, brain}).dtype()) == "f32");
}

TEST_CASE("distances and dot products stay in the type of their operands") {
  const Tensor a = ones({26, 1}) * 100.3, b = ones({26, 1}) * 100, rows = ones({26}) * 1.001;
  const Autocast guard;
  CHECK(max(cdist(a, b)).item<float>() == doctest::Approx(0.3).epsilon(0.1));
  CHECK(dot(rows, rows).item<float>() == doctest::Approx(26 * 1.001 * 1.001).epsilon(1e-5));
  CHECK(dot(rows, cast(rows, DType::bf16)).dtype() == DType::f32);
}

// A small network with a residual: the parameters' gradients are f32, and near those of f32.
TEST_CASE("gradients have the type of their parameter") {
  const Tensor x = normal<float>({8, 6}, 1);
  const Tensor target = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 0, 1}, {8});
  const auto train = [&](bool backward_inside, std::optional<DType> low) {
    const Tensors leaves{normal<float>({6, 6}, 2), normal<float>({6}, 3), normal<float>({6}, 4),
                         normal<float>({6}, 5)};
    for (const Tensor& leaf : leaves) leaf.set_requires_grad();
    Tensor loss;
    {
      const Autocast guard(low.value_or(DType::bf16), low.has_value());
      Tensor y = x + gelu(linear(x, leaves[0], leaves[1]));
      y = layer_norm(y, {6}, leaves[2], leaves[3]);
      y = linear(y, leaves[0], leaves[1]) + y;
      loss = cross_entropy(y, target);
      if (backward_inside) loss.backward();
    }
    if (!backward_inside) loss.backward();
    Tensors result{loss.detach()};
    for (const Tensor& leaf : leaves) result.push_back(leaf.grad());
    return result;
  };
  const Tensors reference = train(false, std::nullopt);
  for (const DType low : both) {
    const Tensors outside = train(false, low), inside = train(true, low);
    for (std::size_t i = 0; i < reference.size(); ++i) {
      CAPTURE(i);
      CHECK(concat(outside[i].dtype()) == "f32");
      CHECK(distance(outside[i], inside[i]) == 0);
      CHECK(distance(outside[i], reference[i]) < (low == DType::f16 ? 0x1p-8 : 0x1p-5));
      CHECK(distance(outside[i], reference[i]) > 0);
    }
  }
}

struct Layer {
  const char* name;
  std::vector<Shape> shapes;  // of an input, a weight and a bias
  std::function<Tensor(const Tensors&)> op;
};
const std::vector<Layer> layers = {
    {"conv2d",
     {{3, 16, 9, 7}, {24, 16, 3, 3}, {24}},
     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); }},
    {"conv2d of three channels",
     {{20, 3, 8, 8}, {5, 3, 2, 1}, {5}},
     [](const Tensors& x) {
       return conv2d(x[0], x[1], x[2], {.stride = {1, 2}});
     }},
    {"conv2d without a batch",
     {{6, 5, 4}, {32, 6, 3, 3}, {32}},
     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); }},
    {"linear",
     {{4, 9, 24}, {17, 24}, {17}},
     [](const Tensors& x) { return linear(x[0], x[1], x[2]); }},
};

TEST_CASE("layers in bf16 round their weights, and not the weights' gradients") {
  const DType low = DType::bf16;
  for (const Layer& layer : layers) {
    CAPTURE(layer.name);
    Tensors mine, wide;
    for (std::size_t i = 0; i < 3; ++i) {
      mine.push_back(normal<float>(layer.shapes[i], static_cast<unsigned>(i)));
      wide.push_back(cast(cast(mine[i], low), DType::f32).set_requires_grad());
      mine[i].set_requires_grad();
    }
    const Tensor reference = layer.op(wide);
    const Tensor y = [&] {
      const Autocast guard(low);
      return layer.op(mine);
    }();
    CHECK(y.dtype() == low);
    CHECK(distance(y, reference) <= 0x1p-7);
    const Tensor seed = cast(normal<float>(y.shape(), 4), low);
    y.backward(seed);
    reference.backward(cast(seed, DType::f32));
    CHECK(distance(mine[0].grad(), wide[0].grad()) <= 0x1p-7);
    for (std::size_t i = 1; i < 3; ++i) {
      CHECK(mine[i].grad().dtype() == DType::f32);
      CHECK(distance(mine[i].grad(), wide[i].grad()) < 1e-5);
    }
  }
}

TEST_CASE("gradients of a layer's gradients have the types of its operands") {
  for (const Layer& layer : layers) {
    CAPTURE(layer.name);
    Tensors leaves;
    for (const Shape& shape : layer.shapes) {
      leaves.push_back(normal<float>(shape, 1).set_requires_grad());
    }
    const auto penalty = [&](bool autocast) {
      const Tensor y = [&] {
        const Autocast guard(DType::bf16, autocast);
        return cast(layer.op(leaves), DType::f32);
      }();
      Tensor total = Tensor::zeros({});
      for (const Tensor& slope : autograd::grad({sum(y * y)}, leaves, {.create_graph = true})) {
        CHECK(slope.dtype() == DType::f32);
        total = total + sum(slope * slope);
      }
      return autograd::grad({total}, leaves);
    };
    const Tensors narrow = penalty(true), wide = penalty(false);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CHECK(narrow[i].dtype() == DType::f32);
      CHECK(distance(narrow[i], wide[i]) < 0x1p-4);
    }
  }
}

TEST_CASE("the guard nests, ends with its block, and is its thread's own") {
  CHECK(!context().autocast);
  {
    const Autocast outer(DType::f16);
    {
      const Autocast inner;
      CHECK(context().autocast == DType::bf16);
      const Autocast off(DType::bf16, false);
      CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == DType::f32);
    }
    CHECK(context().autocast == DType::f16);
    bool fresh = true, inherited = false;
    std::thread([&] { fresh = context().autocast.has_value(); }).join();
    std::thread(with_context([&] { inherited = context().autocast == DType::f16; })).join();
    CHECK(!fresh);
    CHECK(inherited);
  }
  CHECK(!context().autocast);
  CHECK(error_of([] { Autocast wrong(DType::f64); }) == "Autocast: expected f16 or bf16, got f64");
}

}  // namespace
