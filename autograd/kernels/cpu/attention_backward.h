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
    return rows_lead + tile_queries + 2 * held_ * step_ + 2 * across_room_ + 3 * rows_room_;
  }

  void operator()(const Head& head, T* room) const {
    Tile tile{head, Dropping<T>(o_, c_, wide_)};
    const auto take = [&](std::int64_t n) { return std::exchange(room, room + n); };
    take(rows_lead);
    tile.shares_room = take(held_ * step_);
    tile.ds = take(held_ * step_);
    tile.totals = take(tile_queries);
    tile.values_across = across(o_, x_.v, head, take(across_room_));
    if (again_) tile.keys_across = across(o_, x_.k, head, take(across_room_));
    tile.keys = rows_of(o_, x_.k, head, take(rows_room_));
    tile.queries = rows_of(o_, x_.q, head, take(rows_room_));
    tile.grads = rows_of(o_, dy_, head, take(rows_room_));
    for (tile.begin = 0; tile.begin < o_.queries; tile.begin += held_) {
      tile.end = std::min(o_.queries, tile.begin + held_);
      if (again_) add_up(tile);
      for (tile.left = 0; tile.left < o_.keys; tile.left += wide_) {
        tile.right = std::min(o_.keys, tile.left + wide_);
        if (seen(o_, tile.end - 1) > tile.left) to_scores(tile);
        if (dx_.q) back_to_queries(tile);
        for (std::int64_t j = tile.left; j < tile.right; j += attention_block) {
          back_to_keys(tile, j);
        }
      }
    }
  }

 private:
  struct Tile {
    Head head;
    Dropping<T> dropping;
    T *shares_room{}, *ds{}, *totals{};
    Across<T> values_across{}, keys_across{};
    Rows<T> keys{}, queries{}, grads{};
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

  // The tile's weights, and gradients of its scores.
  void to_scores(Tile& tile) const {
    const ProductLoops<T>& product = product_loops<T>();
    const auto products = [&](T* out, const Operand<T>& x, const Across<T>& keys) {
      multiply_seen(o_, out, step_, x, tile.head, keys, tile.begin, tile.end, tile.left,
                    tile.right);
    };
    if (scored_) products(tile.ds, dy_, tile.values_across);
    if (again_) products(tile.shares_room, x_.q, tile.keys_across);
    const Rows<T> shares = weights(tile);
    const ScoreRows<T> rows{tile.shares_room,      step_,     tile.begin,
                            tile.end - tile.begin, tile.left, tile.right - tile.left};
    const double scale = score_scale(o_);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      // The sums over queries read whole blocks of keys; whole vectors leave nothing over.
      const std::int64_t block_end = i / attention_block * attention_block + attention_block;
      const std::int64_t count = rows.count(o_, i);
      const std::int64_t filled = vectors<T>(rows.count(o_, block_end - 1));
      T* ds = tile.ds + i * step_;
      const std::int64_t query = tile.begin + i;
      if (tile.left == 0) {
        for (const Operand<T>& x : {x_.q, dy_, x_.k, x_.v, dx_.q, dx_.k, dx_.v}) {
          ask_for_next(o_, x, tile.head, query, query + 1);
        }
        if (!again_) ask_ahead(shares.at + i * shares.step + o_.queries * o_.keys, count);
      }
      if (again_ && filled > 0) {
        const RowSums<T> sums = kept_.sums.from(tile.head.number * o_.queries + tile.begin + i);
        shares_again(o_, c_, tile.head, sums, rows, i, filled);
        tile.dropping.draw(tile.head, rows, i);
        if (scored_) {
          tile.dropping.drop_gradient(ds);
          product.softmax_backward_part(ds, rows.row(i), tile.totals[i], scale, count, filled);
        }
        tile.dropping.drop(rows.row(i));
      } else if (scored_ && filled > 0) {
        product.softmax_backward_scaled(ds, shares.at + i * shares.step, scale, count, filled);
      }
    }
  }

  // What the gradients of the tile's scores give its queries.
  void back_to_queries(const Tile& tile) const {
    const T* keys = tile.keys.at + tile.left * tile.keys.step;
    each_block(o_, tile.begin, tile.end, tile.left, tile.right - tile.left,
               [&](std::int64_t first, std::int64_t n, std::int64_t visible) {
                 T* dq = dx_.q.of(tile.head) + first * dx_.q.row;
                 product_loops<T>().multiply(
                     dq, tile.ds + (first - tile.begin) * step_, keys, tile.left > 0 ? dq : nullptr,
                     {n, o_.width, visible, step_, 1, tile.keys.step, dx_.q.row, dx_.q.row});
               });
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
  const std::int64_t step_ = padded<T>(wide_);
  const std::int64_t across_room_ = Across<T>::room(o_.keys, o_.width);
  const std::int64_t rows_room_ = Rows<T>::room(std::max(o_.queries, o_.keys), o_.width);
};

}  // namespace peal::cpu
