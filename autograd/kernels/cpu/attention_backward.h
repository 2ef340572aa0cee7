// SPDX-License-Identifier: Apache-2.0
// Attention's gradients for one head, tile by tile: some queries by some keys. Shares that are not
// kept are made again from the scores; what softmax_backward needs of a whole row is then y dy
// (Dao et al., "FlashAttention", 2022, section 3.1). Thread safety: heads may be several threads'.
#pragma once

#include <peal/autograd/kernels/cpu/attention_heads.h>
#include <peal/autograd/kernels/cpu/attention_shares.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace peal::cpu {

// Queries and keys of a tile, of both whole blocks. Its shares, their gradients, and the keys and
// values that it reads stay in a cache of 1 MiB together.
constexpr std::int64_t tile_queries = 12 * attention_block, tile_keys = 32 * attention_block;

// One head's way back, tile by tile. Gradients are sums over tiles, in one order.
template <class T>
class HeadBackward {
 public:
  HeadBackward(const AttentionGeometry& o, const AttentionChanges& c, const Operands<T>& dx,
               const Operand<T>& dy, const Operand<T>& y, const Kept<T>& kept, const Operands<T>& x)
      : o_(o), c_(c), dx_(dx), dy_(dy), y_(y), kept_(kept), x_(x) {}

  std::int64_t room() const {
    return rows_lead + tile_queries + 2 * held_ * step_ + 2 * o_.width * keys_step_ +
           4 * rows_room_;
  }

  void operator()(const Head& head, T* room) const {
    Tile tile{head, Dropping<T>(o_, c_, wide_)};
    const auto take = [&](std::int64_t n) { return std::exchange(room, room + n); };
    take(rows_lead);
    tile.shares_room = take(held_ * step_);
    tile.ds = take(held_ * step_);
    tile.totals = take(tile_queries);
    tile.values_across = transposed(o_, x_.v, head, take(o_.width * keys_step_));
    if (again_) tile.keys_across = transposed(o_, x_.k, head, take(o_.width * keys_step_));
    tile.keys = rows_of(o_, x_.k, head, take(rows_room_));
    tile.queries = rows_of(o_, x_.q, head, take(rows_room_));
    tile.grads = rows_of(o_, dy_, head, take(rows_room_));
    for (tile.begin = 0; tile.begin < o_.queries; tile.begin += held_) {
      tile.end = std::min(o_.queries, tile.begin + held_);
      if (again_) add_up(tile);
      for (tile.left = 0; tile.left < o_.keys; tile.left += wide_) {
        tile.right = std::min(o_.keys, tile.left + wide_);
        for (std::int64_t first = tile.begin; first < tile.end; first += attention_block) {
          back_to_queries(tile, first, std::min(attention_block, tile.end - first));
        }
        for (std::int64_t j = tile.left; j < tile.right; j += attention_block)
          back_to_keys(tile, j);
      }
    }
  }

 private:
  struct Tile {
    Head head;
    Dropping<T> dropping;
    T *shares_room{}, *ds{}, *totals{};
    Rows<T> values_across{}, keys_across{}, keys{}, queries{}, grads{};
    std::int64_t begin = 0, end = 0, left = 0, right = 0;  // its queries and keys
  };

  // Of each query the sum of its weights times their gradients, which is that of y times dy.
  void add_up(Tile& tile) const {
    for (std::int64_t i = tile.begin; i < tile.end; ++i) {
      tile.totals[i - tile.begin] = static_cast<T>(norm_loops<T>().dot(
          y_.of(tile.head) + i * y_.row, dy_.of(tile.head) + i * dy_.row, o_.width));
    }
  }

  // The weights of a tile's values.
  Rows<T> weights(const Tile& tile) const {
    if (again_) return {tile.shares_room, step_};
    return {kept_.shares + (tile.head.number * o_.queries + tile.begin) * o_.keys, o_.keys};
  }

  // Weights and gradients of the scores of n queries from `first` on, and what these give queries.
  void back_to_queries(Tile& tile, std::int64_t first, std::int64_t n) const {
    const ProductLoops<T>& product = product_loops<T>();
    const std::int64_t wide = tile.right - tile.left, line = first - tile.begin;
    const auto seen_here = [&](std::int64_t query) {
      return std::clamp<std::int64_t>(seen(o_, query) - tile.left, 0, wide);
    };
    const std::int64_t visible = seen_here(first + n - 1);
    if (visible == 0 || !(scored_ || again_)) return;
    // The sums over queries read whole blocks of keys, which fewer queries may not fill.
    const std::int64_t filled = seen_here(first + attention_block - 1);
    T* ds = tile.ds + line * step_;
    if (scored_) {
      product.multiply(ds, dy_.of(tile.head) + first * dy_.row, tile.values_across.at + tile.left,
                       nullptr, {n, visible, o_.width, dy_.row, 1, tile.values_across.step, step_});
    }
    const double scale = score_scale(o_);
    if (again_) {
      const ScoreRows<T> rows{tile.shares_room + line * step_, step_, first, n, tile.left, wide};
      product.multiply(rows.at, x_.q.of(tile.head) + first * x_.q.row,
                       tile.keys_across.at + tile.left, nullptr,
                       {n, visible, o_.width, x_.q.row, 1, tile.keys_across.step, step_});
      for (std::int64_t i = 0; i < n; ++i) {
        const RowSums<T> sums = kept_.sums.from(tile.head.number * o_.queries + first + i);
        shares_again(o_, c_, tile.head, sums, rows, i, filled);
        tile.dropping.draw(tile.head, rows, i);
        if (scored_) {
          tile.dropping.drop_gradient(ds + i * step_);
          product.softmax_backward_part(ds + i * step_, rows.row(i), tile.totals[line + i], scale,
                                        rows.count(o_, i), filled);
        }
        tile.dropping.drop(rows.row(i));
      }
    } else {
      const Rows<T> shares = weights(tile);
      for (std::int64_t i = 0; i < n; ++i) {
        product.softmax_backward_scaled(ds + i * step_, shares.at + (line + i) * shares.step, scale,
                                        seen_here(first + i), filled);
      }
    }
    if (!dx_.q) return;
    T* dq = dx_.q.of(tile.head) + first * dx_.q.row;
    product.multiply(dq, ds, tile.keys.at + tile.left * tile.keys.step,
                     tile.left > 0 ? dq : nullptr,
                     {n, o_.width, visible, step_, 1, tile.keys.step, dx_.q.row, dx_.q.row});
  }

  // What a block of keys and values from j on gets from the tile's queries.
  void back_to_keys(const Tile& tile, std::int64_t j) const {
    const std::int64_t n = std::min(attention_block, tile.right - j);
    // Before block j no query sees these keys; a key that none sees gets a sum of nothing.
    const std::int64_t first = std::min(tile.end, o_.causal ? std::max(tile.begin, j) : tile.begin);
    const bool add = o_.causal ? j < tile.begin : tile.begin > 0;
    if (first == tile.end && tile.begin > 0) return;
    const auto sum = [&](const Operand<T>& to, const Rows<T>& left, const Rows<T>& right) {
      if (!to) return;
      T* out = to.of(tile.head) + j * to.row;
      product_loops<T>().multiply(
          out, left.at + (first - tile.begin) * left.step + j - tile.left,
          right.at + first * right.step, add ? out : nullptr,
          {n, o_.width, tile.end - first, 1, left.step, right.step, to.row, to.row});
    };
    sum(dx_.v, weights(tile), tile.grads);
    sum(dx_.k, {tile.ds, step_}, tile.queries);
  }

  const AttentionGeometry& o_;
  const AttentionChanges& c_;
  const Operands<T>& dx_;
  const Operand<T>& dy_;
  const Operand<T>& y_;
  const Kept<T>& kept_;
  const Operands<T>& x_;
  const bool again_ = bool(kept_.sums), scored_ = dx_.q || dx_.k;
  const std::int64_t held_ = std::min(tile_queries, o_.queries);
  const std::int64_t wide_ = again_ ? std::min(tile_keys, o_.keys) : o_.keys;
  const std::int64_t step_ = padded<T>(wide_), keys_step_ = padded<T>(o_.keys);
  const std::int64_t rows_room_ = std::max(o_.queries, o_.keys) * padded<T>(o_.width);
};

}  // namespace peal::cpu
