// SPDX-License-Identifier: Apache-2.0
// A tensor without a value, wherever an op wants one, is an error in the op's name.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using testing::error_of;

TEST_CASE("every op names itself where an operand was never given a value") {
  const Tensor none, x = ones({2, 2}), image = ones({1, 1, 4, 4}), index = arange(2);
  const Tensor condition = gt(x, 0);
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"add", [&] { none + x; }},
      {"add", [&] { x + none; }},
      {"add", [&] { none + 1.0; }},
      {"sub", [&] { x - none; }},
      {"mul", [&] { none* x; }},
      {"mul", [&] { none * 2.0; }},
      {"div", [&] { none / x; }},
      {"div", [&] { x / none; }},
      {"div", [&] { none / 2.0; }},
      {"div", [&] { 2.0 / none; }},
      {"neg", [&] { -none; }},
      {"add_", [&] { add_(none, x); }},
      {"add_", [&] { add_(x, none); }},
      {"mul_", [&] { mul_(none, 2); }},
      {"fill_", [&] { fill_(none, 2); }},
      {"relu", [&] { relu(none); }},
      {"relu", [&] { relu(Tensor()); }},
      {"tanh", [&] { tanh(none); }},
      {"sigmoid", [&] { sigmoid(none); }},
      {"gelu", [&] { gelu(none); }},
      {"exp", [&] { exp(none); }},
      {"log", [&] { log(none); }},
      {"sqrt", [&] { sqrt(none); }},
      {"abs", [&] { abs(none); }},
      {"pow", [&] { pow(none, 2); }},
      {"clamp", [&] { clamp(none, 0); }},
      {"clamp_min", [&] { clamp_min(none, 0); }},
      {"fill_diagonal_", [&] { fill_diagonal_(none, 0); }},
      {"eq", [&] { eq(none, x); }},
      {"lt", [&] { lt(none, 1); }},
      {"logical_and", [&] { logical_and(none, condition); }},
      {"logical_and", [&] { logical_and(condition, none); }},
      {"logical_or", [&] { logical_or(none, condition); }},
      {"logical_xor", [&] { logical_xor(condition, none); }},
      {"logical_not", [&] { logical_not(none); }},
      {"&", [&] { none& condition; }},
      {"~", [&] { ~none; }},
      {"where", [&] { where(none, x, x); }},
      {"where", [&] { where(condition, none, x); }},
      {"cast", [&] { cast(none, DType::f64); }},
      {"sum", [&] { sum(none); }},
      {"sum", [&] { sum(none, {0}); }},
      {"mean", [&] { mean(none); }},
      {"mean", [&] { mean(none, {0}); }},
      {"argmax", [&] { argmax(none, 0); }},
      {"argmin", [&] { argmin(none, 0); }},
      {"max", [&] { max(none, 0); }},
      {"min", [&] { min(none, 0); }},
      {"max", [&] { max(none); }},
      {"amin", [&] { amin(none, 0); }},
      {"argmax", [&] { argmax(none); }},
      {"prod", [&] { prod(none); }},
      {"any", [&] { any(none); }},
      {"var", [&] { var(none); }},
      {"std", [&] { peal::std(none, 0); }},
      {"norm", [&] { norm(none); }},
      {"logsumexp", [&] { logsumexp(none, 0); }},
      {"cumprod", [&] { cumprod(none, 0); }},
      {"cummax", [&] { cummax(none, 0); }},
      {"floor", [&] { floor(none); }},
      {"sin", [&] { sin(none); }},
      {"silu", [&] { silu(none); }},
      {"prelu", [&] { prelu(none, x); }},
      {"reshape", [&] { reshape(none, {2}); }},
      {"view_as", [&] { view_as(none, x); }},
      {"flatten", [&] { flatten(none); }},
      {"unsqueeze", [&] { unsqueeze(none, 0); }},
      {"squeeze", [&] { squeeze(none, 0); }},
      {"permute", [&] { permute(none, {0}); }},
      {"transpose", [&] { transpose(none, 0, 1); }},
      {"slice", [&] { slice(none, 0, 0); }},
      {"narrow", [&] { narrow(none, 0, 0, 1); }},
      {"select", [&] { select(none, 0, 0); }},
      {"cat", [&] { cat({none}); }},
      {"cat",
       [&] {
         cat({x, none});
       }},
      {"stack", [&] { stack({none}); }},
      {"split", [&] { split(none, 1); }},
      {"index_select", [&] { index_select(none, 0, index); }},
      {"index_select", [&] { index_select(x, 0, none); }},
      {"gather", [&] { gather(none, 0, index); }},
      {"gather", [&] { gather(x, 0, none); }},
      {"embedding", [&] { embedding(none, x); }},
      {"embedding", [&] { embedding(index, none); }},
      {"matmul", [&] { matmul(none, x); }},
      {"matmul", [&] { matmul(x, none); }},
      {"linear", [&] { linear(none, x); }},
      {"linear", [&] { linear(x, none); }},
      {"feed_forward", [&] { feed_forward(none, x, {}, x, {}); }},
      {"conv1d",
       [&] {
         conv1d(none, ones({1, 1, 1}));
       }},
      {"conv2d", [&] { conv2d(none, image); }},
      {"conv2d", [&] { conv2d(image, none); }},
      {"max_pool2d",
       [&] {
         max_pool2d(none, {2, 2});
       }},
      {"avg_pool2d",
       [&] {
         avg_pool2d(none, {2, 2});
       }},
      {"adaptive_avg_pool2d",
       [&] {
         adaptive_avg_pool2d(none, {2, 2});
       }},
      {"softmax", [&] { softmax(none); }},
      {"log_softmax", [&] { log_softmax(none); }},
      {"nll_loss", [&] { nll_loss(none, index); }},
      {"nll_loss", [&] { nll_loss(x, none); }},
      {"cross_entropy", [&] { cross_entropy(none, index); }},
      {"cross_entropy", [&] { cross_entropy(x, none); }},
      {"mse_loss", [&] { mse_loss(none, x); }},
      {"mse_loss", [&] { mse_loss(x, none); }},
      {"smooth_l1_loss", [&] { smooth_l1_loss(none, x); }},
      {"binary_cross_entropy_with_logits", [&] { binary_cross_entropy_with_logits(x, none); }},
      {"l1_loss", [&] { l1_loss(x, none); }},
      {"huber_loss", [&] { huber_loss(none, x); }},
      {"mse_loss", [&] { mse_loss(x, x, none); }},
      {"binary_cross_entropy", [&] { binary_cross_entropy(none, x); }},
      {"kl_div", [&] { kl_div(x, none); }},
      {"poisson_nll_loss", [&] { poisson_nll_loss(none, x); }},
      {"gaussian_nll_loss", [&] { gaussian_nll_loss(x, x, none); }},
      {"soft_margin_loss", [&] { soft_margin_loss(none, x); }},
      {"hinge_embedding_loss", [&] { hinge_embedding_loss(x, none); }},
      {"margin_ranking_loss", [&] { margin_ranking_loss(x, x, none); }},
      {"cosine_embedding_loss", [&] { cosine_embedding_loss(x, none, x); }},
      {"triplet_margin_loss", [&] { triplet_margin_loss(x, x, none); }},
      {"multi_margin_loss", [&] { multi_margin_loss(none, index); }},
      {"multilabel_margin_loss", [&] { multilabel_margin_loss(x, none); }},
      {"multilabel_soft_margin_loss", [&] { multilabel_soft_margin_loss(none, x); }},
      {"pairwise_distance", [&] { pairwise_distance(x, none); }},
      {"cosine_similarity", [&] { cosine_similarity(none, x); }},
      {"normalize", [&] { normalize(none); }},
      {"layer_norm", [&] { layer_norm(none, {2}); }},
      {"batch_norm", [&] { batch_norm(none, {}, {}); }},
      {"group_norm", [&] { group_norm(none, 1); }},
      {"instance_norm", [&] { instance_norm(none); }},
      {"rms_norm", [&] { rms_norm(none, {2}); }},
      {"local_response_norm", [&] { local_response_norm(none, 2); }},
      {"pad",
       [&] {
         pad(none, {1, 1});
       }},
      {"pixel_shuffle", [&] { pixel_shuffle(none, 2); }},
      {"pixel_unshuffle", [&] { pixel_unshuffle(none, 2); }},
      {"channel_shuffle", [&] { channel_shuffle(none, 2); }},
      {"embedding_bag", [&] { embedding_bag(none, x); }},
      {"dropout", [&] { dropout(none, 0.5); }},
      {"feature_dropout", [&] { feature_dropout(none, 0.5); }},
      {"alpha_dropout", [&] { alpha_dropout(none, 0.5); }},
      {"feature_alpha_dropout", [&] { feature_alpha_dropout(none, 0.5); }},
      {"dropout1d", [&] { dropout1d(none); }},
      {"dropout2d", [&] { dropout2d(none); }},
      {"dropout3d", [&] { dropout3d(none); }},
      {"scaled_dot_product_attention", [&] { scaled_dot_product_attention(none, none, none, 1); }},
      {"self_attention", [&] { self_attention(none, 1); }},
  };
  for (const auto& [op, call] : calls) {
    CAPTURE(op);
    const std::string gradients = op.ends_with('_') ? ", as a grad() is before backward()" : "";
    CHECK(error_of(call) == op + ": a tensor was used before it was given a value" + gradients);
  }
  CHECK(error_of([&] { ones({2}).requires_grad_().grad() /= 2; }) ==
        "/=: a tensor was used before it was given a value, as a grad() is before backward()");
  CHECK(error_of([&] { static_cast<void>(none.shape()); }) ==
        "tensor: used before it was given a value");
}
