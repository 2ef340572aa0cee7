// SPDX-License-Identifier: Apache-2.0
// Attention head by head: a head's rows lie heads * width elements apart, which the small products
// take as they are; what they want transposed is copied once a head. Threads take whole heads. What
// lies in the future of a whole block of queries is not multiplied.
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

// Queries (or keys) of a block: a multiple of the rows of a product's tile. Smaller blocks save
// more of the future and cost more calls.
constexpr std::int64_t block = 12;
// Queries whose scores' gradients are held at once: of all of a short sequence.
constexpr std::int64_t backward_block = 12 * block;

// Where a head's first elements are: of queries, of keys, of its scores.
struct Head {
  std::int64_t q, k, scores;
};

// f(head, room) with `room` elements for its own, of those that a thread has.
template <class T, class F>
void each_head(const AttentionGeometry& o, std::int64_t room, F&& f) {
  const std::int64_t row = o.heads * o.width, scores = o.queries * o.keys;
  parallel_for(
      o.batch * o.heads, scores * o.width / 16 + 1, [&](std::int64_t begin, std::int64_t end) {
        const auto mine = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(room));
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t b = i / o.heads, at = i % o.heads * o.width;
          f(Head{b * o.queries * row + at, b * o.keys * row + at, i * scores}, mine.get());
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

// From row to row of what is copied: whole vectors, and one more, since rows a power of two apart
// meet in few of a cache's sets.
template <class T>
std::int64_t padded(std::int64_t n) {
  const std::int64_t lanes = product_loops<T>().lanes;
  return (n + lanes - 1) / lanes * lanes + lanes;
}

// A head's rows as the right operand of a product.
template <class T>
struct Rows {
  const T* at;
  std::int64_t step;
};

// As they lie, or copied to `room` where whole vectors would reach over a row's end.
template <class T>
Rows<T> rows_of(const AttentionGeometry& o, const T* x, std::int64_t count, T* room) {
  const std::int64_t row = o.heads * o.width;
  if (o.width % product_loops<T>().lanes == 0) return {x, row};
  const std::int64_t step = padded<T>(o.width);
  for (std::int64_t i = 0; i < count; ++i) {
    std::fill(std::copy_n(x + i * row, o.width, room + i * step), room + (i + 1) * step, T(0));
  }
  return {room, step};
}

template <class T>
Rows<T> transposed(const AttentionGeometry& o, const T* x, std::int64_t count, T* room) {
  const std::int64_t step = padded<T>(count);
  product_loops<T>().transpose(room, x, count, o.width, o.heads * o.width, step);
  return {room, step};
}

// The shares of keys in a block of queries, of their scores, which are overwritten.
template <class T>
void shares_of(const AttentionGeometry& o, T* out, T* scores, std::int64_t step, std::int64_t first,
               std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    math_loops().softmax_scaled(
        out, scores,
        {n, o.keys, step, o.keys, seen(o, first), o.causal, static_cast<float>(score_scale(o))});
  } else {
    for (std::int64_t i = 0; i < n; ++i, out += o.keys, scores += step) {
      const std::int64_t count = seen(o, first + i);
      loops<T>().unary(Unary::mul_scalar, scores, scores, score_scale(o), count);
      softmax_row(out, scores, count);
      std::fill(out + count, out + o.keys, T(0));
    }
  }
}

}  // namespace

bool attention(const AttentionGeometry& o, const Tensor& y, const Tensor& probabilities,
               const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t row = o.heads * o.width;
  return with_real(y.dtype(), [&]<class T>() {
    const T *queries = q.data<T>(), *keys = k.data<T>(), *values = v.data<T>();
    T *out = y.data<T>(), *all = probabilities.data<T>();
    const ProductLoops<T>& product = product_loops<T>();
    const std::int64_t step = padded<T>(o.keys), scores_room = block * step;
    const std::int64_t keys_room = o.width * step, values_room = o.keys * padded<T>(o.width);
    each_head<T>(o, scores_room + keys_room + values_room, [&](const Head& head, T* room) {
      T* scores = room;
      const Rows<T> right = transposed(o, keys + head.k, o.keys, room + scores_room);
      const Rows<T> shared = rows_of(o, values + head.k, o.keys, room + scores_room + keys_room);
      for (std::int64_t first = 0; first < o.queries; first += block) {
        const std::int64_t n = std::min(block, o.queries - first);
        const std::int64_t visible = seen(o, first + n - 1);
        product.multiply(scores, queries + head.q + first * row, right.at, nullptr,
                         {n, visible, o.width, row, 1, right.step, step});
        T* shares = all + head.scores + first * o.keys;
        shares_of(o, shares, scores, step, first, n);
        product.multiply(out + head.q + first * row, shares, shared.at, nullptr,
                         {n, o.width, visible, o.keys, 1, shared.step, row});
      }
    });
  });
}

bool attention_backward(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const Tensor& probabilities,
                        const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t row = o.heads * o.width;
  const double scale = score_scale(o);
  return with_real(dy.dtype(), [&]<class T>() {
    const T *queries = q.data<T>(), *keys = k.data<T>(), *values = v.data<T>();
    const T *grad = dy.data<T>(), *all = probabilities.data<T>();
    const ProductLoops<T>& product = product_loops<T>();
    const std::int64_t step = padded<T>(o.keys), held = std::min(backward_block, o.queries);
    const std::int64_t rows_room = std::max(o.queries, o.keys) * padded<T>(o.width);
    each_head<T>(o, held * step + o.width * step + 3 * rows_room, [&](const Head& head, T* room) {
      T *ds = room, *copies = ds + held * step + o.width * step;
      const Rows<T> values_t = transposed(o, values + head.k, o.keys, ds + held * step);
      const Rows<T> k_rows = rows_of(o, keys + head.k, o.keys, copies);
      const Rows<T> q_rows = rows_of(o, queries + head.q, o.queries, copies + rows_room);
      const Rows<T> g_rows = rows_of(o, grad + head.q, o.queries, copies + 2 * rows_room);
      // Gradients of keys and values are sums over blocks of queries.
      for (std::int64_t begin = 0; begin < o.queries; begin += held) {
        const std::int64_t end = std::min(o.queries, begin + held);
        for (std::int64_t first = begin; first < end; first += block) {
          if (!dq.defined() && !dk.defined()) break;
          const std::int64_t n = std::min(block, end - first), visible = seen(o, first + n - 1);
          T* lines = ds + (first - begin) * step;
          // The sums over queries read whole blocks of keys, which fewer queries may not fill.
          const std::int64_t filled = seen(o, first + block - 1);
          product.multiply(lines, grad + head.q + first * row, values_t.at, nullptr,
                           {n, visible, o.width, row, 1, values_t.step, step});
          for (std::int64_t i = 0; i < n; ++i) {
            product.softmax_backward_scaled(lines + i * step,
                                            all + head.scores + (first + i) * o.keys, scale,
                                            seen(o, first + i), filled);
          }
          if (dq.defined()) {
            product.multiply(dq.data<T>() + head.q + first * row, lines, k_rows.at, nullptr,
                             {n, o.width, visible, step, 1, k_rows.step, row});
          }
        }
        for (std::int64_t j = 0; j < o.keys; j += block) {
          const std::int64_t n = std::min(block, o.keys - j), to = head.k + j * row;
          // Before block j no query sees these keys; a key that none sees gets a sum of nothing.
          const std::int64_t first = std::min(end, o.causal ? std::max(begin, j) : begin);
          const bool add = o.causal ? j < begin : begin > 0;
          if (first == end && begin > 0) continue;
          const SmallProduct sum{n, o.width, end - first, 1, 0, 0, row, row};
          if (dv.defined()) {
            SmallProduct of = sum;
            of.step_a = o.keys, of.row_b = g_rows.step;
            T* out = dv.data<T>() + to;
            product.multiply(out, all + head.scores + first * o.keys + j,
                             g_rows.at + first * g_rows.step, add ? out : nullptr, of);
          }
          if (dk.defined()) {
            SmallProduct of = sum;
            of.step_a = step, of.row_b = q_rows.step;
            T* out = dk.data<T>() + to;
            product.multiply(out, ds + (first - begin) * step + j, q_rows.at + first * q_rows.step,
                             add ? out : nullptr, of);
          }
        }
      }
    });
  });
}

}  // namespace peal::cpu
