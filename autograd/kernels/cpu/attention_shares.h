// SPDX-License-Identifier: Apache-2.0
// The shares that a query gives to keys: softmax of its scores, with what AttentionChanges say of
// them; and the same shares once more from the scores and two numbers of the row, any part of a
// row by itself. Shares that are dropped come from the words of their own places, so they are the
// same each time. Thread safety: pure functions but for what they are told to write; a Dropping
// belongs to one thread.
#pragma once

#include <peal/autograd/kernels/cpu/attention_heads.h>
#include <peal/autograd/kernels/cpu/softmax_row.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

namespace peal::cpu {

// Elements before a first row of shares that can be read (Dropping), and keep it on a cache line.
constexpr std::int64_t rows_lead = 16;

// What rows' exponentials were shifted (in f32 before the scale) and multiplied by. Apart, as
// beside a score of -1e9, which a mask may make of all, the logarithm of a sum of 500 would be
// lost.
template <class T>
struct RowSums {
  T *largest = nullptr, *inverse = nullptr;
  explicit operator bool() const { return largest != nullptr; }
  RowSums from(std::int64_t row) const {
    return *this ? RowSums{largest + row, inverse + row} : RowSums{};
  }
};

// What forward keeps for backward: of each query the shares, or what makes them again; the other is
// null.
template <class T>
struct Kept {
  T* shares;
  RowSums<T> sums;
  explicit Kept(const Tensor& kept) : shares(kept.dim() == 4 ? kept.data<T>() : nullptr) {
    if (kept.dim() == 3) sums = {kept.data<T>(), kept.data<T>() + kept.numel() / 2};
  }
};

// Rows of scores, which become shares: of queries from `query` on, `rows` of them, `step` elements
// apart, and of keys from `key` on, `keys` of them.
template <class T>
struct ScoreRows {
  T* at;
  std::int64_t step, query, rows, key, keys;
  T* row(std::int64_t i) const { return at + i * step; }
  // How many of these keys row i sees.
  std::int64_t count(const AttentionGeometry& o, std::int64_t i) const {
    return std::clamp<std::int64_t>(seen(o, query + i) - key, 0, keys);
  }
};

// The scores' scale and mask, if there is one. Whether row i has a score above -infinity.
template <class T>
bool mask_row(const AttentionGeometry& o, const AttentionChanges& c, const Head& head,
              const ScoreRows<T>& rows, std::int64_t i) {
  const bool of_bool = c.mask.dtype() == DType::boolean;
  const std::int64_t at =
      c.heads[static_cast<std::size_t>(head.number)] + (rows.query + i) * c.row + rows.key;
  return product_loops<T>().change_scores(
      rows.row(i), score_scale(o), of_bool ? nullptr : c.mask.data<T>() + at,
      of_bool ? c.mask.data<bool>() + at : nullptr, rows.count(o, i));
}

// Of a block's whole rows: their shares in `out`, from row to row `step`, n of them and 0 where
// nothing is seen; and `sums`, unless it is null.
template <class T>
void softmax_rows(const AttentionGeometry& o, T* out, std::int64_t step, std::int64_t n,
                  const RowSums<T>& sums, const ScoreRows<T>& rows, double scale) {
  if constexpr (std::is_same_v<T, float>) {
    math_loops().softmax_scaled(out, rows.at,
                                {rows.rows, n, rows.step, step, rows.count(o, 0), o.causal,
                                 static_cast<float>(scale), sums.largest, sums.inverse});
    // So far these are the totals themselves.
    for (std::int64_t i = 0; i < rows.rows && sums; ++i) sums.inverse[i] = 1 / sums.inverse[i];
  } else {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      T *to = out + i * step, *from = rows.row(i);
      const std::int64_t count = rows.count(o, i);
      loops<T>().unary(Unary::mul_scalar, from, from, scale, count);
      const auto [largest, total] = softmax_row(to, from, count);
      if (sums) {
        sums.largest[i] = largest;
        sums.inverse[i] = 1 / total;
      }
      std::fill(to + count, to + n, T(0));
    }
  }
}

// The same of a block with a mask, in place. A query that sees nothing has shares of 0: all its
// scores are -infinity, also less 0.
template <class T>
void masked_softmax_rows(const AttentionGeometry& o, const AttentionChanges& c, const Head& head,
                         const RowSums<T>& sums, const ScoreRows<T>& rows) {
  bool sees[attention_block];
  for (std::int64_t i = 0; i < rows.rows; ++i) sees[i] = mask_row(o, c, head, rows, i);
  softmax_rows(o, rows.at, rows.step, rows.keys, sums, rows, 1);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (sees[i]) continue;
    std::fill_n(rows.row(i), rows.keys, T(0));
    sums.largest[i] = sums.inverse[i] = 0;
  }
}

// Row i's shares from its scores and what `sums` points at, 0 from those that it sees to `filled`.
template <class T>
void shares_again(const AttentionGeometry& o, const AttentionChanges& c, const Head& head,
                  const RowSums<T>& sums, const ScoreRows<T>& rows, std::int64_t i,
                  std::int64_t filled) {
  double scale = score_scale(o);
  if (c.mask.defined()) {
    mask_row(o, c, head, rows, i);
    scale = 1;
  }
  T* x = rows.row(i);
  const std::int64_t count = rows.count(o, i);
  if constexpr (std::is_same_v<T, float>) {
    math_loops().exp_part(x, static_cast<float>(scale), *sums.largest, *sums.inverse, count,
                          filled);
  } else {
    if (scale != 1) loops<T>().unary(Unary::mul_scalar, x, x, scale, count);
    for (std::int64_t j = 0; j < count; ++j) x[j] = *sums.inverse * std::exp(x[j] - *sums.largest);
    if (count < filled) std::fill(x + count, x + filled, T(0));
  }
}

// Drops shares of rows of at most `keys`. REQUIRES: the three elements before each row that it is
// given can be read, whatever they are.
template <class T>
class Dropping {
 public:
  Dropping(const AttentionGeometry& o, const AttentionChanges& c, std::int64_t keys)
      : o_(o), c_(c) {
    if (!c.drops()) return;
    const auto room = static_cast<std::size_t>(keys + block - 1);
    weights_ = std::make_unique_for_overwrite<T[]>(room);
    kept_ = std::make_unique_for_overwrite<std::uint8_t[]>(room);
  }

  // Draws for row i's shares. Then:
  void draw(const Head& head, const ScoreRows<T>& rows, std::int64_t i) {
    if (!c_.drops()) return;
    n_ = rows.count(o_, i);
    const std::int64_t at = (head.number * o_.queries + rows.query + i) * o_.keys + rows.key;
    first_ = at % block;
    masked_loops<T>().dropout(weights_.get(), kept_.get(), rows.row(i) - first_, c_.words,
                              at - first_, c_.threshold, c_.factor, n_ + first_);
  }
  // The shares, as values are weighed with them.
  void drop(T* shares) const {
    if (c_.drops()) std::copy_n(weights_.get() + first_, n_, shares);
  }
  // From the weights' gradient that of the shares.
  void drop_gradient(T* gradient) const {
    if (!c_.drops()) return;
    masked_loops<T>().dropout_backward(gradient, gradient, kept_.get() + first_, c_.factor, n_);
  }

 private:
  static constexpr std::int64_t block = 4;  // words that are drawn together

  const AttentionGeometry& o_;
  const AttentionChanges& c_;
  std::unique_ptr<T[]> weights_;
  std::unique_ptr<std::uint8_t[]> kept_;
  std::int64_t first_ = 0, n_ = 0;  // where in the rooms a row begins, and its shares
};

}  // namespace peal::cpu
