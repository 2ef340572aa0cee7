// SPDX-License-Identifier: Apache-2.0
// Attention head by head: a head's rows lie heads * width elements apart, which the matrix products
// take as they are. Threads take whole heads.
#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/softmax_row.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace peal::cpu {
namespace {

// Where a head's first elements are: of queries, of keys, of its scores.
struct Head {
  std::int64_t q, k, scores;
};

template <class F>
void each_head(const AttentionGeometry& o, F&& f) {
  const std::int64_t row = o.heads * o.width, scores = o.queries * o.keys;
  parallel_for(o.batch * o.heads, scores * o.width / 16 + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t b = i / o.heads, at = i % o.heads * o.width;
                   f(Head{b * o.queries * row + at, b * o.keys * row + at, i * scores});
                 }
               });
}

// The keys that a query sees.
std::int64_t seen(const AttentionGeometry& o, std::int64_t query) {
  return o.causal ? std::min(query + 1, o.keys) : o.keys;
}

// f(first query, queries, the keys that the last of them sees) for blocks of queries: what lies in
// the future of a whole block is not multiplied. Smaller blocks save more and run slower.
template <class F>
void each_block(const AttentionGeometry& o, F&& f) {
  const std::int64_t block = o.causal ? 64 : o.queries;
  for (std::int64_t i = 0; i < o.queries; i += block) {
    const std::int64_t n = std::min(block, o.queries - i);
    f(i, n, seen(o, i + n - 1));
  }
}

double score_scale(const AttentionGeometry& o) {
  return 1 / std::sqrt(static_cast<double>(o.width));
}

}  // namespace

bool attention(const AttentionGeometry& o, const Tensor& y, const Tensor& probabilities,
               const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t row = o.heads * o.width;
  return with_real(y.dtype(), [&]<class T>() {
    const T *queries = q.data<T>(), *keys = k.data<T>(), *values = v.data<T>();
    T *out = y.data<T>(), *all = probabilities.data<T>();
    each_head(o, [&](const Head& head) {
      T* p = all + head.scores;
      each_block(o, [&](std::int64_t first, std::int64_t n, std::int64_t visible) {
        T* scores = p + first * o.keys;
        gemm(scores, queries + head.q + first * row, keys + head.k,
             {n, visible, o.width, false, true, row, row, o.keys}, false);
        for (std::int64_t i = 0; i < n; ++i) {
          T* line = scores + i * o.keys;
          const std::int64_t count = seen(o, first + i);
          loops<T>().unary(Unary::mul_scalar, line, line, score_scale(o), count);
          softmax_row(line, line, count);
          std::fill(line + count, line + o.keys, T(0));
        }
        gemm(out + head.q + first * row, scores, values + head.k,
             {n, o.width, visible, false, false, o.keys, row, row}, false);
      });
    });
  });
}

bool attention_backward(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const Tensor& probabilities,
                        const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t row = o.heads * o.width;
  return with_real(dy.dtype(), [&]<class T>() {
    const T *queries = q.data<T>(), *keys = k.data<T>(), *values = v.data<T>();
    const T *grad = dy.data<T>(), *all = probabilities.data<T>();
    each_head(o, [&](const Head& head) {
      const T* p = all + head.scores;
      std::unique_ptr<T[]> room;
      if (dq.defined() || dk.defined()) {
        room = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(o.queries * o.keys));
      }
      // dv and dk are sums over the blocks: the first sees the fewest keys, so the rest is zeroed.
      const auto clear = [&](const Tensor& x) {
        for (std::int64_t i = 0; x.defined() && i < o.keys; ++i) {
          std::fill_n(x.data<T>() + head.k + i * row, o.width, T(0));
        }
      };
      clear(dv);
      clear(dk);
      each_block(o, [&](std::int64_t first, std::int64_t n, std::int64_t visible) {
        const T* g = grad + head.q + first * row;
        const T* shares = p + first * o.keys;
        if (dv.defined()) {
          gemm(dv.data<T>() + head.k, shares, g,
               {visible, o.width, n, true, false, o.keys, row, row}, true);
        }
        if (!room) return;
        T* ds = room.get() + first * o.keys;
        gemm(ds, g, values + head.k, {n, visible, o.width, false, true, row, row, o.keys}, false);
        for (std::int64_t i = 0; i < n; ++i) {
          T* line = ds + i * o.keys;
          const std::int64_t count = seen(o, first + i);
          softmax_row_backward(line, shares + i * o.keys, line, count);
          loops<T>().unary(Unary::mul_scalar, line, line, score_scale(o), count);
          std::fill(line + count, line + visible, T(0));
        }
        if (dq.defined()) {
          gemm(dq.data<T>() + head.q + first * row, ds, keys + head.k,
               {n, o.width, visible, false, false, o.keys, row, row}, false);
        }
        if (dk.defined()) {
          gemm(dk.data<T>() + head.k, ds, queries + head.q + first * row,
               {visible, o.width, n, true, false, o.keys, row, row}, true);
        }
      });
    });
  });
}

}  // namespace peal::cpu
