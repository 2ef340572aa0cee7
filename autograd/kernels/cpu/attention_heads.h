// SPDX-License-Identifier: Apache-2.0
// Heads of attention: where one's rows lie in queries, keys and values, heads * width elements
// apart, which the small products take as they are on the left, and copies for the right.
// Thread safety: pure functions but for what they are told to write.
#pragma once

#include <peal/autograd/kernels/cpu/ahead.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/geometry.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

namespace peal::cpu {

// Queries (or keys) of a block: a multiple of the rows of a product's tile. Smaller blocks save
// more of the future and cost more calls.
constexpr std::int64_t attention_block = 12;

// A head: of which sequence, from which column on, and its place among all.
struct Head {
  std::int64_t sequence, column, number;
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

// The result, or its gradient.
template <class T>
Operand<T> result(const AttentionGeometry& o, const Tensor& y) {
  return {y.defined() ? y.data<T>() : nullptr, o.queries, o.heads * o.width};
}

// f(head, room) with `room` elements for its own, of those that a thread has.
template <class T, class F>
void each_head(const AttentionGeometry& o, std::int64_t room, F&& f) {
  parallel_for(o.batch * o.heads, o.queries * o.keys * o.width / 16 + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 const Tensor mine = Tensor::empty({room}, dtype_of<T>, Device{});
                 for (std::int64_t i = begin; i < end; ++i) {
                   f(Head{i / o.heads, i % o.heads * o.width, i}, mine.data<T>());
                 }
               });
}

// Asks for the next head's rows [begin, end), as far as there are any: they lie so far apart that
// the CPU does not foresee them.
template <class T>
void ask_for_next(const AttentionGeometry& o, const Operand<T>& x, const Head& head,
                  std::int64_t begin, std::int64_t end) {
  const std::int64_t number = head.number + 1;
  if (!x || number == o.batch * o.heads) return;
  const T* at = x.of({number / o.heads, number % o.heads * o.width, number});
  for (std::int64_t i = begin; i < std::min(end, x.count); ++i) {
    ask_ahead(at + i * x.row, o.width);
  }
}

// The keys that a query sees.
inline std::int64_t seen(const AttentionGeometry& o, std::int64_t query) {
  return o.causal ? std::min(query + 1, o.keys) : o.keys;
}

inline double score_scale(const AttentionGeometry& o) {
  return 1 / std::sqrt(static_cast<double>(o.width));
}

// Queries [begin, end) in blocks that see alike of `wide` keys from `key` on: f(first, count, how
// many of the keys the last of them sees). Those that see all are one block.
template <class F>
void each_block(const AttentionGeometry& o, std::int64_t begin, std::int64_t end, std::int64_t key,
                std::int64_t wide, F&& f) {
  while (begin < end) {
    const bool all = seen(o, begin) >= key + wide;
    const std::int64_t n = all ? end - begin : std::min(attention_block, end - begin);
    const std::int64_t visible = std::min(wide, seen(o, begin + n - 1) - key);
    if (visible > 0) f(begin, n, visible);
    begin += n;
  }
}

// n elements in whole vectors.
template <class T>
std::int64_t vectors(std::int64_t n) {
  const std::int64_t lanes = product_loops<T>().lanes;
  return (n + lanes - 1) / lanes * lanes;
}

// From row to row of scores: whole vectors, and one more, since rows a power of two apart meet in
// few of a cache's sets.
template <class T>
std::int64_t padded(std::int64_t n) {
  return vectors<T>(n) + product_loops<T>().lanes;
}

// A head's rows as the right operand of a product, copied so that they lie one behind the other.
template <class T>
struct Rows {
  const T* at;
  std::int64_t step;
  static std::int64_t room(std::int64_t count, std::int64_t width) {
    return count * vectors<T>(width);
  }
};

template <class T>
Rows<T> rows_of(const AttentionGeometry& o, const Operand<T>& x, const Head& head, T* room) {
  if (!x) return {};
  const std::int64_t step = vectors<T>(o.width);
  for (std::int64_t i = 0; i < x.count; ++i) {
    std::fill(std::copy_n(x.of(head) + i * x.row, o.width, room + i * step), room + (i + 1) * step,
              T(0));
  }
  return {room, step};
}

// The same across, in panels as wide as a product's tile: all rows of one, then the next.
template <class T>
struct Across {
  const T* at;
  std::int64_t rows;
  // From a column that begins one.
  const T* panel(std::int64_t column) const { return at + column * rows; }
  static std::int64_t room(std::int64_t count, std::int64_t width) {
    const std::int64_t wide = product_loops<T>().columns;
    return (count + wide - 1) / wide * wide * width;
  }
};

template <class T>
Across<T> across(const AttentionGeometry& o, const Operand<T>& x, const Head& head, T* room) {
  const ProductLoops<T>& loops = product_loops<T>();
  for (std::int64_t i = 0; i < x.count; i += loops.columns) {
    loops.transpose(room + i * o.width, x.of(head) + i * x.row,
                    std::min(loops.columns, x.count - i), o.width, x.row, loops.columns);
  }
  return {room, o.width};
}

// Products of queries [begin, end) of x with keys [left, right), where they are seen; the first of
// both goes to out[0], from row to row `step`. A panel of keys, which the first cache holds, meets
// all queries. REQUIRES: left begins a panel.
template <class T>
void multiply_seen(const AttentionGeometry& o, T* out, std::int64_t step, const Operand<T>& x,
                   const Head& head, const Across<T>& keys, std::int64_t begin, std::int64_t end,
                   std::int64_t left, std::int64_t right) {
  const ProductLoops<T>& loops = product_loops<T>();
  for (std::int64_t key = left; key < right; key += loops.columns) {
    const std::int64_t wide = std::min(loops.columns, right - key);
    each_block(o, begin, end, key, wide, [&](std::int64_t first, std::int64_t n, std::int64_t m) {
      // In whole vectors: what no query sees costs less to store than to leave out.
      loops.multiply(out + (first - begin) * step + key - left, x.of(head) + first * x.row,
                     keys.panel(key), nullptr,
                     {n, std::min(wide, vectors<T>(m)), o.width, x.row, 1, loops.columns, step});
    });
  }
}

}  // namespace peal::cpu
