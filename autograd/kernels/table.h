// SPDX-License-Identifier: Apache-2.0
// The table of kernels: what a device can compute, one typed entry a family. An op checks shapes,
// makes its output and calls an entry; a kernel only computes. An entry that is empty, or that
// returns false because it does not serve the dtype, is the error "matmul: no cuda kernel for i64".
// A device library registers its table once, before first use. REQUIRES of every kernel: shapes,
// dtypes and devices are as its comment says (ops check them); outputs do not overlap inputs unless
// it says so. Thread safety: tables are constant and kernels may run on several threads at once.
#pragma once

#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/cost.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/optimizer.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace peal {

// Throws "OP: no DEVICE kernel for DTYPE".
[[noreturn]] void no_kernel(std::string_view op, Device device, DType dtype);
// Throws that the gradient of the innermost op cannot be differentiated in turn (grad.h).
[[noreturn]] void not_differentiable();

template <class... Args>
class Kernel {
 public:
  using Function = bool (*)(Args...);  // false: this dtype is not served
  Kernel() = default;
  Kernel(Function function) : function_(function) {}  // NOLINT: a table is written as plain names
  explicit operator bool() const { return function_ != nullptr; }
  // `op` and `subject` are for the error.
  void operator()(std::string_view op, const Tensor& subject, Args... args) const {
    if (TraceSpan::recording()) TraceSpan::add(cost_of(args...));
    if (!OpName::may_call_kernels()) not_differentiable();
    if (function_ == nullptr || !function_(args...)) {
      no_kernel(op, subject.device(), subject.dtype());
    }
  }

 private:
  Function function_ = nullptr;
};

enum class Binary : std::uint8_t { add, sub, mul, div, relu_backward };
enum class Unary : std::uint8_t { add_scalar, mul_scalar, div_scalar, relu };

enum class Pointwise : std::uint8_t {
  exp,
  log,
  sqrt,
  abs,
  tanh,
  sigmoid,
  gelu,
  gelu_tanh,
  pow,    // x^s
  clamp,  // to [s, t]
};
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge };

enum class PairLoss : std::uint8_t { squared_error, smooth_l1, bce_with_logits };

struct Kernels {
  Kernel<const Tensor&, double> fill;                          // out
  Kernel<const Tensor&> arange;                                // out = 0, 1, ...
  Kernel<const Tensor&, RandomRange, double, double> uniform;  // out, low, high
  Kernel<const Tensor&, RandomRange> normal;                   // out; two words a pair of elements

  // out, a, b: one dtype; a and b broadcast to out. out may be a or b where shapes are equal.
  Kernel<Binary, const Tensor&, const Tensor&, const Tensor&> binary;
  Kernel<Unary, const Tensor&, const Tensor&, double> unary;  // out, x, s: out may be x
  Kernel<const Tensor&, const Tensor&, double> axpy;          // x += alpha y
  Kernel<const Tensor&, const Tensor&, double> expand;        // out = scale * x, broadcast to out

  // out, x, s, t: out may be x.
  Kernel<Pointwise, const Tensor&, const Tensor&, double, double> pointwise;
  // dx, dy, kept, s, t: kept is y for exp, sqrt, tanh and sigmoid, else x; dx may be dy.
  Kernel<Pointwise, const Tensor&, const Tensor&, const Tensor&, double, double> pointwise_backward;
  // out bool, a, b: one dtype; a and b broadcast to out.
  Kernel<Compare, const Tensor&, const Tensor&, const Tensor&> compare;
  // out, condition bool, a, b: all three broadcast to out.
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&> where;
  Kernel<const Tensor&, const Tensor&> cast;  // out, x: any two dtypes, one shape

  // out, x, steps, at: out[i, j, ...] = x[at + i steps[0] + j steps[1] + ...], any dtype; and back:
  // those elements of out = x[i, j, ...], the others stay.
  Kernel<const Tensor&, const Tensor&, const Steps&, std::int64_t> read_strided;
  Kernel<const Tensor&, const Tensor&, const Steps&, std::int64_t> write_strided;
  // out, x, index i64 [n] in range, dim: out = x's slices at the indices; and back: added to out's.
  Kernel<const Tensor&, const Tensor&, const Tensor&, int> index_select;
  Kernel<const Tensor&, const Tensor&, const Tensor&, int> index_add;
  // out, x, index i64 in range, dim: out[.., i, ..] = x[.., index[.., i, ..], ..]; and back: x[..,
  // i,
  // ..] is added to out[.., index[.., i, ..], ..].
  Kernel<const Tensor&, const Tensor&, const Tensor&, int> gather;
  Kernel<const Tensor&, const Tensor&, const Tensor&, int> scatter_add;

  // counted (f64, one element, or undefined), index i64, limit, ignored: what is in [0, limit) or
  // `ignored` is fine, counted = how many are not ignored. For devices whose values the host does
  // not look at: what is not fine is told when it next waits for the device.
  Kernel<const Tensor&, const Tensor&, std::int64_t, std::int64_t> check_indices;

  // out, x, mask of the reduced dimensions, scale: out has the kept sizes, in order; integers sum
  // to i64.
  Kernel<const Tensor&, const Tensor&, std::uint32_t, double> sum;
  Kernel<const Tensor&, const Tensor&, int> argmax;  // out i64, x, dim
  Kernel<const Tensor&, const Tensor&, int> argmin;

  // out [M, N], a, b, transpose_a, transpose_b, bias [N] or undefined.
  Kernel<const Tensor&, const Tensor&, const Tensor&, bool, bool, const Tensor&> matmul;

  // The same without a bias, and sums [M] = the sums of the rows of a (of its transpose, by the
  // flag): the gradients of a weight and a bias read the output's once. May be empty: matmul and
  // sum serve then.
  Kernel<const Tensor&, const Tensor&, const Tensor&, bool, bool, const Tensor&> matmul_and_sums;

  // Both may be empty: matmul, pointwise and sum serve then. out = gelu by tanh of a b^T + bias [N]
  // (or undefined), which kept becomes (or undefined): out and kept [M, N], a, b [N, K].
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&> matmul_gelu;
  // out = a b times the slope of that gelu at kept, and sums [N] (or undefined) = the sums of out's
  // columns: out and kept [M, N], a, b [K, N].
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&>
      matmul_gelu_backward;

  // matmul for each of a batch: out [B, M, N], a and b with B first.
  Kernel<const Tensor&, const Tensor&, const Tensor&, bool, bool> batched_matmul;

  Kernel<const Tensor&, const Tensor&> softmax;  // y, x: over the last dimension
  Kernel<const Tensor&, const Tensor&, const Tensor&> softmax_backward;  // dx, y, dy
  // Whether a query keeps a number, from which its probabilities are made again, and not these
  // (AttentionResult). Empty: never.
  bool (*attention_recomputes)(const AttentionGeometry&, DType) = nullptr;
  // y and what is kept; q [B, T, heads D], k and v [B, S, heads D]
  Kernel<const AttentionGeometry&, const AttentionResult&, const Tensor&, const Tensor&,
         const Tensor&>
      attention;
  // dq, dk, dv (each or undefined), dy, y and what is kept, q, k, v
  Kernel<const AttentionGeometry&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         const AttentionResult&, const Tensor&, const Tensor&, const Tensor&>
      attention_backward;
  // The same of queries, keys and values side by side, [B, T, 3 heads width]; where a device has
  // none, they are taken apart. y and what is kept, qkv; dqkv, dy, y and what is kept, qkv
  Kernel<const AttentionGeometry&, const AttentionResult&, const Tensor&> self_attention;
  Kernel<const AttentionGeometry&, const Tensor&, const Tensor&, const AttentionResult&,
         const Tensor&>
      self_attention_backward;

  // y, mean, inverse deviation (one a row of x), x [rows, width], weight and bias [width] or
  // undefined, eps
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         double>
      layer_norm;
  // dx, dweight, dbias (each or undefined), dy, x, mean, inverse deviation, weight or undefined
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         const Tensor&, const Tensor&>
      layer_norm_backward;
  // mean [C], variance [C] (over all, not all but one), x [N, C, plane]
  Kernel<const Tensor&, const Tensor&, const Tensor&> channel_statistics;
  // y, x [N, C, plane], mean, variance, weight and bias [C] or undefined, eps
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         double>
      batch_norm;
  // dx, dweight, dbias (each or undefined), dy, x, mean, variance, weight or undefined, eps,
  // whether mean and variance are x's own
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         const Tensor&, const Tensor&, double, bool>
      batch_norm_backward;

  Kernel<const Tensor&, const Tensor&> log_softmax;  // y, x: over the last dimension
  Kernel<const Tensor&, const Tensor&, const Tensor&> log_softmax_backward;  // dx, y, dy
  // loss [N], log_probabilities [N, C], target [N] in range or ignored, which classes. The target
  // is smoothed: 1 - smoothing for the class, and smoothing / C for each.
  Kernel<const Tensor&, const Tensor&, const Tensor&, const ClassTargets&> nll;
  // dx [N, C], dloss (one element or [N]), target, which classes, scale
  Kernel<const Tensor&, const Tensor&, const Tensor&, const ClassTargets&, double> nll_backward;
  // dx [N, C] = (exp(log_probabilities) - smoothed target) * dloss * scale
  Kernel<const Tensor&, const Tensor&, const Tensor&, const Tensor&, const ClassTargets&, double>
      cross_entropy_backward;
  // loss, x, target: one shape; beta is smooth_l1's.
  Kernel<PairLoss, const Tensor&, const Tensor&, const Tensor&, double> pair_loss;
  // dx, dtarget (either undefined), dloss (one element or as x), x, target, beta, scale
  Kernel<PairLoss, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         double, double>
      pair_loss_backward;

  // y, x, weight, bias or undefined
  Kernel<const Conv2dGeometry&, const Tensor&, const Tensor&, const Tensor&, const Tensor&> conv2d;
  // dx, dweight, dbias (each or undefined), dy, x, weight
  Kernel<const Conv2dGeometry&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
         const Tensor&, const Tensor&>
      conv2d_backward;
  Kernel<const Pool2dGeometry&, const Tensor&, const Tensor&, const Tensor&>
      max_pool2d;  // y, x, index (u8 or i32 of the window)
  Kernel<const Pool2dGeometry&, const Tensor&, const Tensor&, const Tensor&>
      max_pool2d_backward;                                                         // dx, dy, index
  Kernel<const AveragePool2d&, const Tensor&, const Tensor&> avg_pool2d;           // y, x
  Kernel<const AveragePool2d&, const Tensor&, const Tensor&> avg_pool2d_backward;  // dx, dy

  // y, mask (u8, 1: kept), x, words, threshold, scale: kept where word >= threshold.
  Kernel<const Tensor&, const Tensor&, const Tensor&, RandomRange, std::uint32_t, double> dropout;
  Kernel<const Tensor&, const Tensor&, const Tensor&, double>
      dropout_backward;  // dx, dy, mask, scale; dx may be dy

  // Lists of parameters with their gradients and states, as optimizer.h says.
  Kernel<std::span<const Stepped>, const SgdStep&> sgd;
  Kernel<std::span<const Stepped>, const AdamStep&> adam;
  // out (one element, f64) = the sum of |x|^p over all tensors, or for infinite p the largest |x|,
  // which is NaN where one is.
  Kernel<const Tensor&, std::span<const Tensor>, double> power_sum;
  // norm (one element, f64) = the norm of all tensors together, of order p or infinite; each x *=
  // most / (norm + 1e-6) unless that is at least 1.
  Kernel<const Tensor&, std::span<const Tensor>, double, double> clip_norm;
  // Each x *= factor; found (one element, f32, or undefined) becomes 1 where a result is not
  // finite.
  Kernel<std::span<const Tensor>, double, const Tensor&> scale_all;
};

// Error where no table is registered for the device.
const Kernels& kernels(Device device);

// Called once by a library that brings a device, before first use.
void register_kernels(DeviceType type, const Kernels* table);

}  // namespace peal
