// SPDX-License-Identifier: Apache-2.0
// The shares that a query gives to keys: softmax of its scores, with what AttentionChanges say of
// them; and the same shares once more from the scores and the logarithm of the row's sum of
// exponentials, any part of a row by itself. Shares that are dropped come from the words of their
// own places, so they are the same each time. Thread safety: pure functions but for what they are
// told to write; a Dropping belongs to one thread.
#pragma once

#include <peal/autograd/kernels/cpu/attention_heads.h>
#include <peal/autograd/kernels/cpu/softmax_row.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

namespace peal::cpu {

// Elements before a first row of shares that can be read (Dropping), and keep it on a cache line.
constexpr std::int64_t rows_lead = 16;

// What forward keeps for backward: of each query the shares, or a logarithm; the other is null.
template <class T>
struct Kept {
  T *shares, *logs;
  explicit Kept(const Tensor& kept)
      : shares(kept.dim() == 4 ? kept.data<T>() : nullptr),
        logs(kept.dim() == 3 ? kept.data<T>() : nullptr) {}
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
// nothing is seen; and in `logs`, unless it is null, the logarithms.
template <class T>
void softmax_rows(const AttentionGeometry& o, T* out, std::int64_t step, std::int64_t n, T* logs,
                  const ScoreRows<T>& rows, double scale) {
  if constexpr (std::is_same_v<T, float>) {
    float largest[attention_block], total[attention_block];
    math_loops().softmax_scaled(
        out, rows.at,
        {rows.rows, n, rows.step, step, rows.count(o, 0), o.causal, static_cast<float>(scale),
         logs != nullptr ? largest : nullptr, logs != nullptr ? total : nullptr});
    for (std::int64_t i = 0; i < rows.rows && logs != nullptr; ++i) {
      logs[i] = largest[i] + std::log(total[i]);
    }
  } else {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      T *to = out + i * step, *from = rows.row(i);
      const std::int64_t count = rows.count(o, i);
      loops<T>().unary(Unary::mul_scalar, from, from, scale, count);
      const auto [largest, total] = softmax_row(to, from, count);
      if (logs != nullptr) logs[i] = largest + std::log(total);
      std::fill(to + count, to + n, T(0));
    }
  }
}

// The same of a block with a mask, in place. A query that sees nothing has shares of 0, and
// infinity for a logarithm.
template <class T>
void masked_softmax_rows(const AttentionGeometry& o, const AttentionChanges& c, const Head& head,
                         T* logs, const ScoreRows<T>& rows) {
  bool sees[attention_block];
  for (std::int64_t i = 0; i < rows.rows; ++i) sees[i] = mask_row(o, c, head, rows, i);
  softmax_rows(o, rows.at, rows.step, rows.keys, logs, rows, 1);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (sees[i]) continue;
    std::fill_n(rows.row(i), rows.keys, T(0));
    logs[i] = std::numeric_limits<T>::infinity();
  }
}

// Row i's shares from its scores and its logarithm, 0 from those that it sees to `filled`.
template <class T>
void shares_again(const AttentionGeometry& o, const AttentionChanges& c, const Head& head, T log,
                  const ScoreRows<T>& rows, std::int64_t i, std::int64_t filled) {
  double scale = score_scale(o);
  if (c.mask.defined()) {
    mask_row(o, c, head, rows, i);
    scale = 1;
  }
  T* x = rows.row(i);
  const std::int64_t count = rows.count(o, i);
  if constexpr (std::is_same_v<T, float>) {
    math_loops().exp_part(x, static_cast<float>(scale), log, count, filled);
  } else {
    for (std::int64_t j = 0; j < count; ++j) x[j] = std::exp(x[j] * scale - log);
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
    real_loops<T>().dropout(weights_.get(), kept_.get(), rows.row(i) - first_, c_.words,
                            at - first_, c_.threshold, c_.factor, n_ + first_);
  }
  // The shares, as values are weighed with them.
  void drop(T* shares) const {
    if (c_.drops()) std::copy_n(weights_.get() + first_, n_, shares);
  }
  // From the weights' gradient that of the shares.
  void drop_gradient(T* gradient) const {
    if (!c_.drops()) return;
    real_loops<T>().dropout_backward(gradient, gradient, kept_.get() + first_, c_.factor, n_);
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
