// SPDX-License-Identifier: Apache-2.0
// Autocast: mixed precision. While one lives, the ops of this thread choose what they compute in,
// whatever the types of their operands are (PyTorch's torch.autocast; the choice is that of its
// documentation, "Automatic Mixed Precision package", op lists; mean, which sums as well, is peal's
// addition):
//
//   low precision     linear, matmul and what is made of it (mm, mv, bmm, addmm, addmv, baddbmm,
//                     einsum, tensordot), feed_forward, conv1d to conv3d and their transposes,
//                     scaled_dot_product_attention, self_attention, lstm, gru, rnn_tanh, rnn_relu
//   f32               exp, exp2, expm1, log, log1p, log2, log10, logit, pow, reciprocal, rsqrt,
//                     tan, asin, acos, sinh, cosh, erfinv, softplus; sum, mean, prod, cumsum,
//                     cumprod; softmax, log_softmax, gumbel_softmax; layer_norm, group_norm,
//                     rms_norm; cdist, pdist, pairwise_distance, cosine_similarity, normalize;
//                     the losses
//   the widest        dot, bilinear, grid_sample, with nothing lowered inside
//   the operands'     everything else, as without a guard: of two types the one that holds both
//                     (ops/promotion.h); batch_norm has its statistics and parameters in f32 anyway
//
//   Autocast guard(DType::bf16);              // the model's parameters stay f32
//   Tensor loss = cross_entropy(model(x), y); // f32
//
// The casts are recorded like any op, so a gradient has its parameter's type. Those of a weight and
// bias in f32 of linear and conv2d to bf16 are part of the layer on the CPU, which writes their
// gradients in f32 at once, and not rounded. f64 is left alone.
// backward runs each op in the types that forward had, inside the guard or outside. f16 gradients
// fall below its range easily: scale the loss (nn/amp/grad_scaler.h). Thread safety: the guard is
// the thread's own (core/context.h), and belongs to the block that made it.
//
// An op of the lists starts with a line such as
//   if (lowers(x, weight)) return linear(lowered(x), lowered(weight));
#pragma once

#include <peal/autograd/core/tensor.h>

#include <optional>

namespace peal {

class Autocast {
 public:
  // Error unless dtype is f16 or bf16. With enabled = false ops do as they do without one.
  explicit Autocast(DType dtype = DType::bf16, bool enabled = true);
  ~Autocast() { context().autocast = before_; }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> before_;
};

// The operand cast to low precision, or to f32; itself where there is nothing to do.
Tensor lowered(const Tensor& x);
Tensor widened(const Tensor& x);

// Whether autocast is on and one of these operands would be cast by it. Undefined ones, integers
// and f64 are not.
bool would_lower(const Tensor& x);
bool would_widen(const Tensor& x);
template <class... T>
bool lowers(const T&... operands) {
  return context().autocast && (would_lower(operands) || ...);
}
template <class... T>
bool widens(const T&... operands) {
  return context().autocast && (would_widen(operands) || ...);
}

}  // namespace peal
