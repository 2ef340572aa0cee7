// SPDX-License-Identifier: Apache-2.0
// Attention head by head: a head's rows lie heads * width elements apart, which the small products
// take as they are; what they want transposed is copied once a head. Threads take whole heads. What
// lies in the future of a whole block of queries is not multiplied.
//
// The shares of a short row are kept for backward. Of a longer one, or one with a mask or dropout,
// only the largest score and one over the sum of exponentials are: backward makes the shares of a
// tile, some queries by some keys, once more (Dao et al., "FlashAttention", 2022, section 3.1). So
// what is kept, and what is held meanwhile, grows with the number of queries and keys, not their
// product.
#include <peal/autograd/kernels/cpu/attention_backward.h>
#include <peal/autograd/kernels/cpu/attention_heads.h>
#include <peal/autograd/kernels/cpu/attention_shares.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>

namespace peal::cpu {
namespace {

// Shares of rows up to so long are kept: to make them again costs more than to read them.
constexpr std::int64_t short_row = tile_keys;

template <class T>
void forward(const AttentionGeometry& o, const AttentionChanges& c, const Operand<T>& y,
             const Kept<T>& kept, const Operands<T>& x) {
  const ProductLoops<T>& product = product_loops<T>();
  const std::int64_t step = padded<T>(o.keys), scores_room = rows_lead + attention_block * step;
  const std::int64_t keys_room = o.width * step, values_room = o.keys * padded<T>(o.width);
  each_head<T>(o, scores_room + keys_room + values_room, [&](const Head& head, T* room) {
    T* scores = room + rows_lead;
    const Rows<T> keys = transposed(o, x.k, head, room + scores_room);
    const Rows<T> values = rows_of(o, x.v, head, room + scores_room + keys_room);
    Dropping<T> dropping(o, c, o.keys);
    for (std::int64_t first = 0; first < o.queries; first += attention_block) {
      const std::int64_t n = std::min(attention_block, o.queries - first);
      const std::int64_t visible = seen(o, first + n - 1);
      product.multiply(scores, x.q.of(head) + first * x.q.row, keys.at, nullptr,
                       {n, visible, o.width, x.q.row, 1, keys.step, step});
      const ScoreRows<T> rows{scores, step, first, n, 0, visible};
      T* shares = kept.shares != nullptr ? kept.shares + (head.number * o.queries + first) * o.keys
                                         : scores;
      const RowSums<T> sums = kept.sums.from(head.number * o.queries + first);
      const std::int64_t shares_step = kept.shares != nullptr ? o.keys : step;
      if (c.mask.defined()) {
        masked_softmax_rows(o, c, head, sums, rows);
      } else {
        softmax_rows(o, shares, shares_step, kept.shares != nullptr ? o.keys : visible, sums, rows,
                     score_scale(o));
      }
      for (std::int64_t i = 0; i < n && c.drops(); ++i) {
        dropping.draw(head, rows, i);
        dropping.drop(rows.row(i));
      }
      product.multiply(y.of(head) + first * y.row, shares, values.at, nullptr,
                       {n, o.width, visible, shares_step, 1, values.step, y.row});
    }
  });
}

template <class T>
void backward(const AttentionGeometry& o, const AttentionChanges& c, const Operands<T>& dx,
              const Operand<T>& dy, const AttentionResult& from, const Operands<T>& x) {
  const Operand<T> y = result<T>(o, from.y);
  const Kept<T> kept(from.kept);
  const HeadBackward<T> head(o, c, dx, dy, y, kept, x);
  each_head<T>(o, head.room(), head);
}

}  // namespace

bool attention_recomputes(const AttentionGeometry& o, DType) { return o.keys > short_row; }

bool attention(const AttentionGeometry& o, const AttentionResult& to, const Tensor& q,
               const Tensor& k, const Tensor& v) {
  return changed_attention(o, {}, to, q, k, v);
}

bool changed_attention(const AttentionGeometry& o, const AttentionChanges& c,
                       const AttentionResult& to, const Tensor& q, const Tensor& k,
                       const Tensor& v) {
  return with_real(to.y.dtype(), [&]<class T>() {
    forward<T>(o, c, result<T>(o, to.y), Kept<T>(to.kept), operands<T>(o, q, k, v));
  });
}

bool attention_backward(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv, const Tensor& dy, const AttentionResult& from,
                        const Tensor& q, const Tensor& k, const Tensor& v) {
  return changed_attention_backward(o, {}, dq, dk, dv, dy, from, q, k, v);
}

bool changed_attention_backward(const AttentionGeometry& o, const AttentionChanges& c,
                                const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                const Tensor& dy, const AttentionResult& from, const Tensor& q,
                                const Tensor& k, const Tensor& v) {
  return with_real(dy.dtype(), [&]<class T>() {
    backward<T>(o, c, operands<T>(o, dq, dk, dv), result<T>(o, dy), from, operands<T>(o, q, k, v));
  });
}

bool self_attention(const AttentionGeometry& o, const AttentionResult& to, const Tensor& qkv) {
  return with_real(to.y.dtype(), [&]<class T>() {
    forward<T>(o, {}, result<T>(o, to.y), Kept<T>(to.kept), operands<T>(o, qkv));
  });
}

bool self_attention_backward(const AttentionGeometry& o, const Tensor& dqkv, const Tensor& dy,
                             const AttentionResult& from, const Tensor& qkv) {
  return with_real(dy.dtype(), [&]<class T>() {
    backward<T>(o, {}, operands<T>(o, dqkv), result<T>(o, dy), from, operands<T>(o, qkv));
  });
}

}  // namespace peal::cpu
