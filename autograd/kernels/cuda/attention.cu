// SPDX-License-Identifier: Apache-2.0
// Attention: by cuDNN (cudnn_attention.h) where that serves it; else fused (fused_attention.h)
// where that serves the head's width; else products by cuBLASLt, which read the heads where they
// lie, with the mask and the softmax between them in one pass of a kernel. Scores and their
// gradients are f32 for f16 and bf16, in memory that is given back at the end; the scale is a
// factor of the products.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/cublaslt.h>
#include <peal/autograd/kernels/cuda/cudnn_attention.h>
#include <peal/autograd/kernels/cuda/fused_attention.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cuda {
namespace {

using functor::computed;

// What the rows of scores are: `rows` of them, B x heads x queries, each of `keys`.
struct ScoreRows {
  std::int64_t rows, queries, keys;
  bool causal;
  // The keys that a row's query sees.
  __device__ std::int64_t seen(std::int64_t row) const {
    const std::int64_t query = row % queries;
    return causal && query + 1 < keys ? query + 1 : keys;
  }
};

// A row is a warp's work, a long one a block's.
int threads_for(std::int64_t keys) { return keys <= 1024 ? warp : block; }

// p = softmax of what a query sees of its scores, and 0 elsewhere; p may be the scores.
template <class T>
__global__ void masked_softmax(ScoreRows o, int threads, T* p, const computed<T>* scores) {
  using C = computed<T>;
  const std::int64_t row = thread_number() / threads;
  if (row >= o.rows) return;  // a whole warp, or nobody
  const int first = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t count = o.seen(row), at = row * o.keys;
  const C lowest = -HUGE_VALF;
  C largest = lowest;
  for (std::int64_t i = first; i < count; i += threads) largest = Larger{}(largest, scores[at + i]);
  largest = group_reduce(largest, Larger{}, lowest, threads);
  C total = 0;
  for (std::int64_t i = first; i < count; i += threads) total += std::exp(scores[at + i] - largest);
  const C share = 1 / group_reduce(total, Plus{}, C(0), threads);
  for (std::int64_t i = first; i < o.keys; i += threads) {
    p[at + i] = static_cast<T>(i < count ? std::exp(scores[at + i] - largest) * share : C(0));
  }
}

// ds = p (dp - sum(p dp)) over what a query sees, and 0 elsewhere; ds may be dp.
template <class T>
__global__ void masked_softmax_backward(ScoreRows o, int threads, T* ds, const T* p,
                                        const computed<T>* dp) {
  using C = computed<T>;
  const std::int64_t row = thread_number() / threads;
  if (row >= o.rows) return;
  const int first = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t count = o.seen(row), at = row * o.keys;
  C total = 0;
  for (std::int64_t i = first; i < count; i += threads) {
    total += static_cast<C>(p[at + i]) * dp[at + i];
  }
  total = group_reduce(total, Plus{}, C(0), threads);
  for (std::int64_t i = first; i < o.keys; i += threads) {
    const C share = static_cast<C>(p[at + i]);
    ds[at + i] = static_cast<T>(i < count ? share * (dp[at + i] - total) : C(0));
  }
}

template <class Kernel, class... Args>
void launch_rows(const AttentionGeometry& o, const Tensor& on, Kernel kernel, Args... args) {
  const ScoreRows rows{o.batch * o.heads * o.queries, o.queries, o.keys, o.causal};
  const int threads = threads_for(o.keys);
  const std::int64_t in_block = block / threads;
  launch(on, (rows.rows + in_block - 1) / in_block, block, kernel, rows, threads, args...);
}

// [B, length, heads width], or one of several such side by side.
Tokens tokens(const AttentionGeometry& o, const Tensor& x, std::int64_t part = 0,
              std::int64_t parts = 1) {
  const std::int64_t width = o.heads * o.width;
  return {x, parts * width, part * width};
}

// An operand of the products: where its heads lie.
struct Heads {
  const Tensor& data;
  HeadMatrices layout;
  std::int64_t at = 0;  // the first element
};

Heads sequence(const AttentionGeometry& o, const Tokens& x) {
  return {x.data, {x.row, x.data.size(1) * x.row, o.width}, x.at};
}
// [B, heads, queries, keys]
Heads scores(const AttentionGeometry& o, const Tensor& x) {
  const std::int64_t matrix = o.queries * o.keys;
  return {x, {o.keys, o.heads * matrix, matrix}};
}

// out [m, n] = alpha a [m, k] b [k, n] for every head.
void multiply_heads(const AttentionGeometry& o, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Heads& out, const Heads& a, bool transpose_a, const Heads& b,
                    bool transpose_b, double alpha = 1) {
  const HeadLaunches plan = head_launches(o.batch, o.heads);
  const RowProduct product{m,
                           n,
                           k,
                           transpose_a,
                           transpose_b,
                           a.layout.row,
                           b.layout.row,
                           out.layout.row,
                           plan.batch,
                           plan.step(a.layout),
                           plan.step(b.layout),
                           plan.step(out.layout)};
  for (std::int64_t i = 0; i < plan.launches; ++i) {
    const auto at = [&](const Heads& x) {
      return static_cast<std::byte*>(x.data.raw()) +
             (x.at + plan.offset(x.layout, i)) * static_cast<std::int64_t>(size_of(x.data.dtype()));
    };
    static_cast<void>(multiply(product, {a.data.dtype(), out.data.dtype()}, out.data.device(),
                               {at(out), at(a), at(b)}, alpha));
  }
}

double score_scale(const AttentionGeometry& o) {
  return 1 / std::sqrt(static_cast<double>(o.width));
}

// Memory for scores in the type they are computed in: `there`, where that is its type.
Tensor room_for_scores(const Tensor& there) {
  const DType dtype = computed_in(there.dtype());
  if (there.dtype() == dtype) return there;
  return Tensor::empty(there.shape(), dtype, there.device());
}

template <class T>
void multiply_through(const AttentionGeometry& o, const Tensor& y, const Tensor& probabilities,
                      const Tokens& q, const Tokens& k, const Tokens& v) {
  const Tensor room = room_for_scores(probabilities);
  multiply_heads(o, o.queries, o.keys, o.width, scores(o, room), sequence(o, q), false,
                 sequence(o, k), true, score_scale(o));
  launch_rows(o, y, masked_softmax<T>, pointer<T>(probabilities), pointer<const computed<T>>(room));
  multiply_heads(o, o.queries, o.width, o.keys, sequence(o, tokens(o, y)), scores(o, probabilities),
                 false, sequence(o, v), false);
}

// Of what is wanted: dq, dk and dv may be null.
template <class T>
void multiply_back(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk, const Tokens* dv,
                   const Tensor& dy, const Tensor& probabilities, const Tokens& q, const Tokens& k,
                   const Tokens& v) {
  const Heads grads = sequence(o, tokens(o, dy));
  if (dv != nullptr) {
    multiply_heads(o, o.keys, o.width, o.queries, sequence(o, *dv), scores(o, probabilities), true,
                   grads, false);
  }
  if (dq == nullptr && dk == nullptr) return;
  const Tensor ds = Tensor::empty(probabilities.shape(), dy.dtype(), dy.device());
  const Tensor dp = room_for_scores(ds);
  multiply_heads(o, o.queries, o.keys, o.width, scores(o, dp), grads, false, sequence(o, v), true);
  launch_rows(o, dy, masked_softmax_backward<T>, pointer<T>(ds), pointer<const T>(probabilities),
              pointer<const computed<T>>(dp));
  if (dq != nullptr) {
    multiply_heads(o, o.queries, o.width, o.keys, sequence(o, *dq), scores(o, ds), false,
                   sequence(o, k), false, score_scale(o));
  }
  if (dk != nullptr) {
    multiply_heads(o, o.keys, o.width, o.queries, sequence(o, *dk), scores(o, ds), true,
                   sequence(o, q), false, score_scale(o));
  }
}

bool forward(const AttentionGeometry& o, const AttentionResult& result, const Tokens& q,
             const Tokens& k, const Tokens& v) {
  if (has_fused_attention(o, result.y.dtype())) {
    const Tokens y = tokens(o, result.y);
    if (!cudnn_attention(o, y, result.kept, q, k, v)) {
      fused_attention(o, y, result.kept, q, k, v);
    }
    return true;
  }
  return with_floating(result.y.dtype(),
                       [&]<class T>() { multiply_through<T>(o, result.y, result.kept, q, k, v); });
}

bool backward(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk, const Tokens* dv,
              const Tensor& dy, const AttentionResult& result, const Tokens& q, const Tokens& k,
              const Tokens& v) {
  if (has_fused_attention(o, dy.dtype())) {
    const Tokens grads = tokens(o, dy), y = tokens(o, result.y);
    if (!cudnn_attention_backward(o, dq, dk, dv, grads, y, result.kept, q, k, v)) {
      fused_attention_backward(o, dq, dk, dv, grads, y, result.kept, q, k, v);
    }
    return true;
  }
  return with_floating(
      dy.dtype(), [&]<class T>() { multiply_back<T>(o, dq, dk, dv, dy, result.kept, q, k, v); });
}

}  // namespace

bool attention_recomputes(const AttentionGeometry& o, DType dtype) {
  return has_fused_attention(o, dtype);
}

bool attention(const AttentionGeometry& o, const AttentionResult& result, const Tensor& q,
               const Tensor& k, const Tensor& v) {
  return forward(o, result, tokens(o, q), tokens(o, k), tokens(o, v));
}

bool attention_backward(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const AttentionResult& result,
                        const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tokens to_q = tokens(o, dq), to_k = tokens(o, dk), to_v = tokens(o, dv);
  return backward(o, dq.defined() ? &to_q : nullptr, dk.defined() ? &to_k : nullptr,
                  dv.defined() ? &to_v : nullptr, dy, result, tokens(o, q), tokens(o, k),
                  tokens(o, v));
}

bool self_attention(const AttentionGeometry& o, const AttentionResult& result, const Tensor& qkv) {
  return forward(o, result, tokens(o, qkv, 0, 3), tokens(o, qkv, 1, 3), tokens(o, qkv, 2, 3));
}

bool self_attention_backward(const AttentionGeometry& o, const Tensor& dqkv, const Tensor& dy,
                             const AttentionResult& result, const Tensor& qkv) {
  const Tokens dq = tokens(o, dqkv, 0, 3), dk = tokens(o, dqkv, 1, 3), dv = tokens(o, dqkv, 2, 3);
  return backward(o, &dq, &dk, &dv, dy, result, tokens(o, qkv, 0, 3), tokens(o, qkv, 1, 3),
                  tokens(o, qkv, 2, 3));
}

}  // namespace peal::cuda
