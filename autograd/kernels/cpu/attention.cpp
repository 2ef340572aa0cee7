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

// A head: of which sequence, from which column on, and where its scores are.
struct Head {
  std::int64_t sequence, column, scores;
};

// An operand: of each sequence `count` tokens, `row` elements apart.
template <class T>
struct Operand {
  T* at;
  std::int64_t count, row;
  explicit operator bool() const { return at != nullptr; }
  T* of(const Head& head) const { return at + head.sequence * count * row + head.column; }
};

// Queries, keys and values, or their gradients, of which each may be missing.
template <class T>
struct Operands {
  Operand<T> q, k, v;
};

template <class T>
Operands<T> operands(const AttentionGeometry& o, const Tensor& q, const Tensor& k,
                     const Tensor& v) {
  const std::int64_t row = o.heads * o.width;
  const auto at = [](const Tensor& x) { return x.defined() ? x.data<T>() : nullptr; };
  return {{at(q), o.queries, row}, {at(k), o.keys, row}, {at(v), o.keys, row}};
}

// Side by side in one.
template <class T>
Operands<T> operands(const AttentionGeometry& o, const Tensor& qkv) {
  const std::int64_t width = o.heads * o.width;
  T* at = qkv.data<T>();
  return {{at, o.queries, 3 * width},
          {at + width, o.keys, 3 * width},
          {at + 2 * width, o.keys, 3 * width}};
}

// f(head, room) with `room` elements for its own, of those that a thread has.
template <class T, class F>
void each_head(const AttentionGeometry& o, std::int64_t room, F&& f) {
  const std::int64_t scores = o.queries * o.keys;
  parallel_for(
      o.batch * o.heads, scores * o.width / 16 + 1, [&](std::int64_t begin, std::int64_t end) {
        const auto mine = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(room));
        for (std::int64_t i = begin; i < end; ++i) {
          f(Head{i / o.heads, i % o.heads * o.width, i * scores}, mine.get());
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
Rows<T> rows_of(const AttentionGeometry& o, const Operand<T>& x, const Head& head, T* room) {
  if (!x) return {};
  if (o.width % product_loops<T>().lanes == 0) return {x.of(head), x.row};
  const std::int64_t step = padded<T>(o.width);
  for (std::int64_t i = 0; i < x.count; ++i) {
    std::fill(std::copy_n(x.of(head) + i * x.row, o.width, room + i * step), room + (i + 1) * step,
              T(0));
  }
  return {room, step};
}

template <class T>
Rows<T> transposed(const AttentionGeometry& o, const Operand<T>& x, const Head& head, T* room) {
  const std::int64_t step = padded<T>(x.count);
  product_loops<T>().transpose(room, x.of(head), x.count, o.width, x.row, step);
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

template <class T>
void forward(const AttentionGeometry& o, const Operand<T>& y, T* probabilities,
             const Operands<T>& x) {
  const ProductLoops<T>& product = product_loops<T>();
  const std::int64_t step = padded<T>(o.keys), scores_room = block * step;
  const std::int64_t keys_room = o.width * step, values_room = o.keys * padded<T>(o.width);
  each_head<T>(o, scores_room + keys_room + values_room, [&](const Head& head, T* room) {
    T* scores = room;
    const Rows<T> keys = transposed(o, x.k, head, room + scores_room);
    const Rows<T> values = rows_of(o, x.v, head, room + scores_room + keys_room);
    for (std::int64_t first = 0; first < o.queries; first += block) {
      const std::int64_t n = std::min(block, o.queries - first);
      const std::int64_t visible = seen(o, first + n - 1);
      product.multiply(scores, x.q.of(head) + first * x.q.row, keys.at, nullptr,
                       {n, visible, o.width, x.q.row, 1, keys.step, step});
      T* shares = probabilities + head.scores + first * o.keys;
      shares_of(o, shares, scores, step, first, n);
      product.multiply(y.of(head) + first * y.row, shares, values.at, nullptr,
                       {n, o.width, visible, o.keys, 1, values.step, y.row});
    }
  });
}

template <class T>
void backward(const AttentionGeometry& o, const Operands<T>& dx, const Operand<T>& dy,
              const T* probabilities, const Operands<T>& x) {
  const double scale = score_scale(o);
  const ProductLoops<T>& product = product_loops<T>();
  const std::int64_t step = padded<T>(o.keys), held = std::min(backward_block, o.queries);
  const std::int64_t rows_room = std::max(o.queries, o.keys) * padded<T>(o.width);
  each_head<T>(o, held * step + o.width * step + 3 * rows_room, [&](const Head& head, T* room) {
    T *ds = room, *copies = ds + held * step + o.width * step;
    const T* p = probabilities + head.scores;
    const Rows<T> values = transposed(o, x.v, head, ds + held * step);
    const Rows<T> keys = rows_of(o, x.k, head, copies);
    const Rows<T> queries = rows_of(o, x.q, head, copies + rows_room);
    const Rows<T> grads = rows_of(o, dy, head, copies + 2 * rows_room);
    // Gradients of keys and values are sums over blocks of queries.
    for (std::int64_t begin = 0; begin < o.queries; begin += held) {
      const std::int64_t end = std::min(o.queries, begin + held);
      for (std::int64_t first = begin; first < end && (dx.q || dx.k); first += block) {
        const std::int64_t n = std::min(block, end - first), visible = seen(o, first + n - 1);
        T* lines = ds + (first - begin) * step;
        // The sums over queries read whole blocks of keys, which fewer queries may not fill.
        const std::int64_t filled = seen(o, first + block - 1);
        product.multiply(lines, dy.of(head) + first * dy.row, values.at, nullptr,
                         {n, visible, o.width, dy.row, 1, values.step, step});
        for (std::int64_t i = 0; i < n; ++i) {
          product.softmax_backward_scaled(lines + i * step, p + (first + i) * o.keys, scale,
                                          seen(o, first + i), filled);
        }
        if (dx.q) {
          product.multiply(dx.q.of(head) + first * dx.q.row, lines, keys.at, nullptr,
                           {n, o.width, visible, step, 1, keys.step, dx.q.row});
        }
      }
      for (std::int64_t j = 0; j < o.keys; j += block) {
        const std::int64_t n = std::min(block, o.keys - j);
        // Before block j no query sees these keys; a key that none sees gets a sum of nothing.
        const std::int64_t first = std::min(end, o.causal ? std::max(begin, j) : begin);
        const bool add = o.causal ? j < begin : begin > 0;
        if (first == end && begin > 0) continue;
        const auto sum = [&](const Operand<T>& to, const T* left, std::int64_t left_step,
                             const Rows<T>& right) {
          if (!to) return;
          T* out = to.of(head) + j * to.row;
          product.multiply(out, left, right.at + first * right.step, add ? out : nullptr,
                           {n, o.width, end - first, 1, left_step, right.step, to.row, to.row});
        };
        sum(dx.v, p + first * o.keys + j, o.keys, grads);
        sum(dx.k, ds + (first - begin) * step + j, step, queries);
      }
    }
  });
}

template <class T>
Operand<T> result(const AttentionGeometry& o, const Tensor& y) {
  return {y.data<T>(), o.queries, o.heads * o.width};
}

}  // namespace

bool attention(const AttentionGeometry& o, const AttentionResult& to, const Tensor& q,
               const Tensor& k, const Tensor& v) {
  return with_real(to.y.dtype(), [&]<class T>() {
    forward(o, result<T>(o, to.y), to.kept.data<T>(), operands<T>(o, q, k, v));
  });
}

bool attention_backward(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const AttentionResult& from,
                        const Tensor& q, const Tensor& k, const Tensor& v) {
  return with_real(dy.dtype(), [&]<class T>() {
    backward<T>(o, operands<T>(o, dq, dk, dv), result<T>(o, dy), from.kept.data<T>(),
                operands<T>(o, q, k, v));
  });
}

bool self_attention(const AttentionGeometry& o, const AttentionResult& to, const Tensor& qkv) {
  return with_real(to.y.dtype(), [&]<class T>() {
    forward(o, result<T>(o, to.y), to.kept.data<T>(), operands<T>(o, qkv));
  });
}

bool self_attention_backward(const AttentionGeometry& o, const Tensor& dqkv, const Tensor& dy,
                             const AttentionResult& from, const Tensor& qkv) {
  return with_real(dy.dtype(), [&]<class T>() {
    backward<T>(o, operands<T>(o, dqkv), result<T>(o, dy), from.kept.data<T>(),
                operands<T>(o, qkv));
  });
}

}  // namespace peal::cpu
