// SPDX-License-Identifier: Apache-2.0
// Errors name the op, what was expected and what came.
#include <peal/autograd/grad.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::error_of;

namespace {

Tensor z(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); }
Tensor classes(std::vector<std::int64_t> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("a check without a text quotes its condition") {
  const int ranks = 3;
  CHECK(error_of([&] { PEAL_CHECK(ranks % 2 == 0); }) == "expected ranks % 2 == 0");
  CHECK(error_of([&] { PEAL_CHECK(ranks % 2 == 0, ranks, " ranks"); }) == "3 ranks");
}

TEST_CASE("arithmetic") {
  CHECK(error_of([] {
          z({2, 3}) + z({2, 4});
        }) == "add: shapes [2, 3] and [2, 4] do not broadcast: dimension -1 is 3 and 4");
  CHECK(error_of([] { z({2}, DType::boolean) - z({2}, DType::boolean); }) ==
        "sub: masks (bool) have no difference; where they differ is a ^ b (logical_xor), and "
        "cast(x, DType::i64) makes numbers of them");
  const Tensor two = z({2}), whole = z({2}, DType::i64);
  CHECK(error_of([&] { mul_(whole, 0.5); }) ==
        "mul_: 0.5 is not a value of i64, the type of shape [2]");
  CHECK(error_of([&] { add_(two, z({3})); }) == "add_: expected shape [2], got [3]");
}

TEST_CASE("reductions and shapes") {
  CHECK(error_of([] { sum(z({2, 3}), {2}); }) == "sum: dimension 2 of shape [2, 3]");
  CHECK(error_of([] {
          sum(z({2, 3}), {0, -2});
        }) == "sum: dimension -2 of shape [2, 3] is named twice");
  CHECK(error_of([] { mean(z({2}, DType::i64)); }) ==
        "mean: expected a floating type, got i64 [2]; take it of cast(x, DType::f32)");
  CHECK(error_of([] { mean(z({0})); }) == "mean: no elements to average in shape [0]");
  CHECK(error_of([] {
          argmax(z({2, 0}), 1);
        }) == "argmax: no elements along dimension 1 of shape [2, 0]");
  CHECK(error_of([] {
          reshape(z({2, 3}), {4, 2});
        }) == "reshape: shape [2, 3] has 6 elements, shape [4, 2] has 8");
  CHECK(error_of([] {
          reshape(z({2, 3}), {4, -1});
        }) == "reshape: shape [2, 3] has 6 elements, shape [4, -1] has a multiple of 4");
  CHECK(error_of([] {
          reshape(z({2}), {-1, -1});
        }) == "reshape: at most one size may be -1, got 2");
}

TEST_CASE("products") {
  CHECK(error_of([] {
          matmul(z({2, 3}), z({2, 3}));
        }) == "matmul: shapes [2, 3] and [2, 3] do not chain: 3 columns meet 2 rows");
  CHECK(
      error_of([] {
        matmul(z({2, 3}), z({4, 3}), true, true);
      }) ==
      "matmul: shapes [2, 3] transposed and [4, 3] transposed do not chain: 2 columns meet 3 rows");
  CHECK(error_of([] {
          matmul(z({3}), z({2, 3}));
        }) == "matmul: shapes [3] and [2, 3] do not chain: 3 columns meet 2 rows");
  CHECK(error_of([] {
          matmul(z({}), z({2, 3}));
        }) == "matmul: expected vectors or matrices, got shapes [] and [2, 3]");
  CHECK(error_of([] {
          matmul(z({2}), z({2, 3}), true);
        }) == "matmul: a vector cannot be transposed, got shapes [2] and [2, 3]");
  CHECK(error_of([] {
          mv(z({2, 3}), z({3, 1}));
        }) ==
        "mv: expected operands of 2 and 1 dimension, got shapes [2, 3] and [3, 1]; matmul "
        "takes any");
  CHECK(error_of([] { dot(z({2}), z({3})); }) ==
        "dot: shapes [2] and [3] do not chain: 2 columns meet 3 rows");
  CHECK(error_of([] {
          bmm(z({2, 3, 4}), z({3, 4, 5}));
        }) ==
        "bmm: expected as many matrices of one as of the other, got shapes [2, 3, 4] and "
        "[3, 4, 5]");
  CHECK(error_of([] {
          addmm(z({1, 2, 2}), z({2, 2}), z({2, 2}));
        }) == "addmm: x of shape [1, 2, 2] does not stretch to the product's shape [2, 2]");
  CHECK(error_of([] {
          const Tensor whole = Tensor::zeros({2, 2}, DType::i64);
          addmm(whole, whole, whole, 0.5);
        }) == "addmm: expected integers as beta and alpha of i64, got 0.5 and 1");
  CHECK(error_of([] {
          linear(z({2, 5}), z({7, 4}));
        }) == "linear: input of shape [2, 5] does not fit weight [out, in] = [7, 4]");
  CHECK(error_of([] {
          linear(z({2, 4}), z({7, 4}), z({4}));
        }) == "linear: expected a bias [7], got shape [4]");
}

TEST_CASE("turns, blocks, diagonals and vectors of three") {
  CHECK(error_of([] { rot90(z({3})); }) ==
        "rot90: expected two dimensions of at least two, got 2 of shape [3]");
  CHECK(error_of([] {
          rot90(z({2, 3}), 1, {0});
        }) == "rot90: expected two dimensions of at least two, got 1 of shape [2, 3]");
  CHECK(error_of([] {
          rot90(z({2, 3}), 1, {0, -2});
        }) == "rot90: dimension 0 of shape [2, 3] is named twice");
  CHECK(error_of([] { rot90(z({2, 3}), 1, {0, 2}); }) == "rot90: dimension 2 of shape [2, 3]");
  CHECK(error_of([] {
          block_diag({z({2}), z({1, 1, 1})});
        }) == "block_diag: expected at most two dimensions, got shape [1, 1, 1] of tensor 1");
  CHECK(error_of([] { (void)z({3}).fill_diagonal_(1); }) ==
        "fill_diagonal_: expected at least two dimensions, got shape [3]");
  CHECK(error_of([] {
          (void)z({2, 3, 2}).fill_diagonal_(1);
        }) == "fill_diagonal_: expected a matrix, or dimensions of one size, got shape [2, 3, 2]");
  CHECK(error_of([] {
          z({2, 2}).set_requires_grad().fill_diagonal_(1);
        }).starts_with("fill_diagonal_: a leaf of shape [2, 2] that requires a gradient"));
  CHECK(error_of([] {
          cross(z({2, 2}), z({2, 2}));
        }) == "cross: expected vectors of three along a dimension, got shapes [2, 2] and [2, 2]");
  CHECK(error_of([] {
          linalg::cross(z({3, 2}), z({3, 2}));
        }) == "cross: expected vectors of three along dimension -1, got shapes [3, 2] and [3, 2]");
  CHECK(error_of([] {
          cross(z({3}), z({2, 3}));
        }) ==
        "cross: expected as many dimensions of one as of the other, got shapes [3] and [2, 3]");
  CHECK(error_of([] { cross(z({2, 3}), z({4, 3})); }).starts_with("cross: "));
  CHECK(error_of([] {
          const Tensor mask = ones({3}, DType::boolean);
          cross(mask, mask);
        }) == "cross: expected numbers, got bool");
  CHECK(error_of([] { (void)arange(3).clamp_min_(2.5); }).starts_with("clamp_min_: "));
}

// What is a copy of all numbers in some order shares nothing with x, even if the order is x's.
TEST_CASE("flip and rot90 give elements of their own") {
  const Tensor row = ones({1, 3});
  const Tensor flipped = flip(row, 0), turned = rot90(row, 1);
  for (const Tensor& each : {flipped, turned}) each.fill_(7);
  CHECK(row.to_vector<float>() == std::vector<float>{1, 1, 1});
  const Tensor column = ones({3, 1}), around = rot90(column, 3), block = block_diag({column});
  around.fill_(7);
  block.fill_(7);
  CHECK(column.to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(rot90(ones({2, 2})).fill_(2).to_vector<float>() == std::vector<float>{2, 2, 2, 2});
}

TEST_CASE("sums by the names of dimensions") {
  const auto einsum_of = [](const char* equation, const Tensors& x) {
    return error_of([&] { einsum(equation, x); });
  };
  CHECK(einsum_of("ij,jk->iz", {z({2, 3}), z({3, 2})}) ==
        "einsum \"ij,jk->iz\": the result's 'z' is of no operand");
  CHECK(einsum_of("ij->ii", {z({2, 3})}) == "einsum \"ij->ii\": 'i' twice in the result");
  CHECK(einsum_of("ij,k", {z({2, 3})}) == "einsum \"ij,k\": it names 2 operands, got 1");
  CHECK(einsum_of("ij", {z({2, 3, 4})}) ==
        "einsum \"ij\": operand 0 has 2 letters, and the shape [2, 3, 4]");
  CHECK(einsum_of("i1", {z({2, 3})}) ==
        "einsum \"i1\": expected letters, '...', ',' and one '->', got '1'");
  CHECK(einsum_of("...i...", {z({2, 3})}) == "einsum \"...i...\": '...' twice in '...i...'");
  CHECK(einsum_of("ij,jk", {z({2, 3}), z({4, 2})}) ==
        "einsum \"ij,jk\": 'j' has the sizes 3 and 4");
  CHECK(einsum_of("...,...", {z({2, 3}), z({4, 3})}) ==
        "einsum \"...,...\": a dimension of '...' has the sizes 2 and 4");
  CHECK(einsum_of("ii", {z({2, 1})}) ==
        "einsum: a diagonal of dimensions of 2 and 1 in shape [2, 1]");
  CHECK(error_of([] { tensordot(z({2, 3}), z({2, 3})); }) == "nothing");
  CHECK(error_of([] {
          tensordot(z({2, 3}), z({2, 3}), 1);
        }) == "tensordot: dimension 1 of [2, 3] meets dimension 0 of [2, 3]");
  CHECK(error_of([] {
          tensordot(z({2, 2}), z({2, 2}), {0, 0}, {0, 1});
        }) == "tensordot: dimension 0 of [2, 2] or 1 of [2, 2] is named twice");
}

TEST_CASE("linear algebra names the matrix that has no answer") {
  const Tensor one = eye(2), none = tensor({{1., 2.}, {2., 4.}}), both = stack({one, none});
  CHECK(error_of([&] { linalg::inv(both); }) ==
        "linalg.inv: matrix 1 of shape [2, 2, 2] is singular; pinv gives what is nearest to an "
        "inverse");
  CHECK(error_of([&] { linalg::solve(none, one); }) ==
        "linalg.solve: the matrix of shape [2, 2] is singular; lstsq gives the x of least squares");
  CHECK(error_of([&] { linalg::solve_triangular(both * 0.0, one, true); }) ==
        "linalg.solve_triangular: matrix 0 of shape [2, 2, 2] is singular: an element of its "
        "diagonal is 0");
  CHECK(error_of([&] {
          linalg::cholesky(stack({one, -one}));
        }) ==
        "linalg.cholesky: matrix 1 of shape [2, 2, 2] is not positive definite: its leading minor "
        "of 1 is not positive");
  CHECK(error_of([&] {
          linalg::svd(stack({one, one / 0.0}));
        }) ==
        "linalg.svd: matrix 1 of shape [2, 2, 2] holds what is not finite, or its singular values "
        "do not converge");
  CHECK(error_of([&] {
          linalg::det(z({2, 3}));
        }) == "linalg.det: expected square matrices [..., n, n], got shape [2, 3]");
  CHECK(error_of([&] { linalg::qr(z({3})); }) ==
        "linalg.qr: expected matrices [..., m, n], got shape [3]");
  CHECK(error_of([&] { linalg::svdvals(z({3})); }) ==
        "linalg.svdvals: expected matrices [..., m, n], got shape [3]");
  CHECK(error_of([&] { linalg::inv(cast(one, DType::i64)); }) ==
        "linalg.inv: expected a floating type, got i64 [2, 2]");
  CHECK(error_of([&] {
          linalg::solve(one, z({3, 1}));
        }) == "linalg.solve: matrices of shape [2, 2] do not fit a side of shape [3, 1]");
  CHECK(error_of([&] { linalg::eigh(one, 'l'); }) == "linalg.eigh: expected 'L' or 'U', got 'l'");
  CHECK(error_of([&] { linalg::matrix_norm(one, 3); }) ==
        "linalg.matrix_norm: expected 1, 2 or infinity, or one of these less than 0, got 3");
  const Tensor tall = ones({3, 2}).set_requires_grad();
  const Tensor r = linalg::qr(tall, linalg::QrMode::complete).R;
  CHECK(error_of([&] { sum(r).backward(); }).find("has no gradient") != std::string::npos);
  const Tensor wanting = none.clone().set_requires_grad();
  CHECK(error_of([&] {
          autograd::grad({linalg::det(wanting)}, {wanting}, {.create_graph = true});
        }).find("is singular") != std::string::npos);
}

TEST_CASE("convolution and pooling") {
  CHECK(error_of([] {
          conv2d(z({1, 2, 5, 5}), z({3, 1, 3, 3}));
        }) ==
        "conv2d: expected an input [N, C, H, W] and a weight [O, C, kH, kW] of the same C, got "
        "[1, 2, 5, 5] and [3, 1, 3, 3]");
  CHECK(
      error_of([] {
        conv2d(z({1, 1, 2, 5}), z({3, 1, 3, 3}));
      }) ==
      "conv2d: a kernel of shape [3, 1, 3, 3] does not fit into input [1, 1, 2, 5] with padding 0");
  CHECK(error_of([] {
          conv2d(z({1, 1, 5, 5}, DType::i32), z({3, 1, 3, 3}, DType::i32));
        }) == "conv2d: no cpu kernel for i32");
  CHECK(error_of([] {
          conv2d(z({1, 1, 5, 5}), z({3, 1, 3, 3}), {}, {{0, 1}, {0, 0}});
        }) == "conv2d: expected strides >= 1 and padding >= 0, got 0 and 0");
  CHECK(error_of([] {
          max_pool2d(z({1, 1, 2, 5}), {3, 3});
        }) == "max_pool2d: a window of 3 x 3 with stride 3 does not fit into shape [1, 1, 2, 5]");
  CHECK(
      error_of([] {
        max_pool2d(z({1, 1, 5, 5}), {3, 3}, {.padding = {2, 0}});
      }) ==
      "max_pool2d: expected a padding of at most half of the window and a dilation of at least 1, "
      "got 2 and 1 with a window of 3 x 3");
  CHECK(
      error_of([] {
        conv1d(z({1, 2, 5, 5}), z({3, 2, 3}));
      }) ==
      "conv1d: expected an input [N, C, L] and a weight [O, C, K] of the same C, got [1, 2, 5, 5] "
      "and [3, 2, 3]");
  CHECK(error_of([] {
          conv1d(z({1, 2, 5}), z({3, 2, 7}), {}, {.padding = 0});
        }) ==
        "conv1d: a kernel of shape [3, 2, 7] does not fit into input [1, 2, 5] with padding 0");
  CHECK(error_of([] {
          conv1d(z({1, 2, 5}), z({3, 2, 3}), {}, {.groups = 2});
        }) ==
        "conv1d: expected an input [N, C, L] and a weight [O, C / groups, K] with 2 groups that "
        "divide C and O, got [1, 2, 5] and [3, 2, 3]");
  CHECK(error_of([] {
          conv1d(z({1, 2, 5}), z({3, 2, 3}), {}, {.stride = 0});
        }) == "conv1d: expected strides >= 1 and padding >= 0, got 0 and 0");
  CHECK(error_of([] {
          max_pool2d(z({1, 1, 2, 2}), {4, 4}, {.stride = {2, 2}, .ceil_mode = true});
        }) == "max_pool2d: a window of 4 x 4 with stride 2 does not fit into shape [1, 1, 2, 2]");
  CHECK(error_of([] {
          max_pool2d(z({2, 5}), {2, 2});
        }) == "max_pool2d: expected [N, C, H, W], got shape [2, 5]");
}

TEST_CASE("a bad target names its row") {
  CHECK(error_of([] {
          nll_loss(z({3, 4}), classes({0, 4, 1}));
        }) == "nll_loss: target of row 1 is 4, expected a class in [0, 4)");
  CHECK(error_of([] {
          cross_entropy(z({3, 4}), classes({0, 1, -1}));
        }) == "cross_entropy: target of row 2 is -1, expected a class in [0, 4)");
  CHECK(error_of([] {
          cross_entropy(z({3, 4}), classes({0, 1}));
        }) == "cross_entropy: expected an i64 target [3], got i64 [2]");
  CHECK(error_of([] {
          cross_entropy(z({3, 4}), z({3}));
        }) == "cross_entropy: expected an i64 target [3], got f32 [3]");
  CHECK(error_of([] {
          cross_entropy(z({0, 4}), z({0}, DType::i64));
        }) == "cross_entropy: the mean of no rows");
}

TEST_CASE("dropout, factories and optimizers") {
  CHECK(error_of([] { dropout(z({2}), 1.5); }) ==
        "dropout: expected a probability in [0, 1], got 1.5");
  CHECK(error_of([] { feature_dropout(z({2}), 0.5); }) ==
        "feature_dropout: expected [N, C, ...], got shape [2]");
  CHECK(error_of([] { feature_alpha_dropout(z({2}), 0.5); }) ==
        "feature_alpha_dropout: expected [N, C, ...], got shape [2]");
  CHECK(error_of([] {
          dropout1d(z({2, 3}), 0.5);
        }) == "dropout1d: expected [N, C, L], got shape [2, 3]");
  CHECK(error_of([] {
          dropout3d(z({2, 3, 4, 5}), 0.5);
        }) == "dropout3d: expected [N, C, D, H, W], got shape [2, 3, 4, 5]");
  CHECK(error_of([] {
          embedding(z({1}, DType::i64), z({3, 2}), 3);
        }) == "embedding: padding_idx 3 is outside of a weight of shape [3, 2]");
  CHECK(error_of([] { uniform({2}, 1, 0); }) == "uniform: expected low <= high, got [1, 0)");
  CHECK(error_of([] { randn({2}, DType::i64); }) == "randn: expected a floating type, got i64 [2]");
  CHECK(error_of([] { sgd_step(z({2}), z({3}), {}, {.lr = 1}); }) ==
        "sgd_step: a parameter f32 [2] on cpu came with f32 [3] on cpu");
  CHECK(error_of([] { sgd_step(z({2}), z({2}), {}, {.lr = 1, .momentum = 0.9}); }) ==
        "sgd_step: momentum 0.9 came without a buffer");
  CHECK(error_of([] { adam_step(z({2}), z({2}), z({2}), z({2}), {.step = 0}); }) ==
        "adam_step: steps count from 1, got 0");
  CHECK(error_of([] {
          adam_step(z({2}, DType::bf16), z({2}, DType::bf16), z({2}, DType::bf16),
                    z({2}, DType::bf16), {});
        }) == "adam_step: no cpu kernel for bf16");
}

TEST_CASE("an empty entry of a table is an error that names op, device and dtype") {
  const Kernels empty;
  const Tensor x = z({1}, DType::i64);
  CHECK(error_of([&] { empty.matmul("matmul", x, x, x, x, false, false, {}); }) ==
        "matmul: no cpu kernel for i64");
}
