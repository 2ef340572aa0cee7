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
      gemm(p, queries + head.q, keys + head.k,
           {o.queries, o.keys, o.width, false, true, row, row, 0}, false);
      for (std::int64_t i = 0; i < o.queries; ++i) {
        T* line = p + i * o.keys;
        const std::int64_t n = seen(o, i);
        loops<T>().unary(Unary::mul_scalar, line, line, score_scale(o), n);
        softmax_row(line, line, n);
        std::fill(line + n, line + o.keys, T(0));
      }
      gemm(out + head.q, p, values + head.k,
           {o.queries, o.width, o.keys, false, false, 0, row, row}, false);
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
      if (dv.defined()) {
        gemm(dv.data<T>() + head.k, p, grad + head.q,
             {o.keys, o.width, o.queries, true, false, 0, row, row}, false);
      }
      if (!dq.defined() && !dk.defined()) return;
      const auto scores =
          std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(o.queries * o.keys));
      T* ds = scores.get();
      gemm(ds, grad + head.q, values + head.k,
           {o.queries, o.keys, o.width, false, true, row, row, 0}, false);
      for (std::int64_t i = 0; i < o.queries; ++i) {
        T* line = ds + i * o.keys;
        const std::int64_t n = seen(o, i);
        softmax_row_backward(line, p + i * o.keys, line, n);
        loops<T>().unary(Unary::mul_scalar, line, line, score_scale(o), n);
        std::fill(line + n, line + o.keys, T(0));
      }
      if (dq.defined()) {
        gemm(dq.data<T>() + head.q, ds, keys + head.k,
             {o.queries, o.width, o.keys, false, false, 0, row, row}, false);
      }
      if (dk.defined()) {
        gemm(dk.data<T>() + head.k, ds, queries + head.q,
             {o.keys, o.width, o.queries, true, false, 0, row, row}, false);
      }
    });
  });
}

}  // namespace peal::cpu
