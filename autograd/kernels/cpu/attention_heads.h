// SPDX-License-Identifier: Apache-2.0
// Heads of attention: where one's rows lie in queries, keys and values, heads * width elements
// apart, which the small products take as they are, and the copies of what these want otherwise.
// Thread safety: pure functions but for what they are told to write.
#pragma once

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

// The keys that a query sees.
inline std::int64_t seen(const AttentionGeometry& o, std::int64_t query) {
  return o.causal ? std::min(query + 1, o.keys) : o.keys;
}

inline double score_scale(const AttentionGeometry& o) {
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

}  // namespace peal::cpu
