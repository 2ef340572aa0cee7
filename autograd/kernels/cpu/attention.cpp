// SPDX-License-Identifier: Apache-2.0
// Attention head by head: a head's rows lie heads * width elements apart, which the small products
// take as they are on the left; what comes on the right is copied once a head. Threads take whole
// heads. What lies in the future of a whole block of queries is not multiplied.
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

// The queries whose scores are held at once: whole blocks, that a cache of 1 MiB holds beside what
// they meet.
std::int64_t held_queries(std::int64_t step) {
  constexpr std::int64_t most = 4, room = std::int64_t{1} << 17;
  return std::clamp<std::int64_t>(room / (step * attention_block), 1, most) * attention_block;
}

// One head's result, some queries at a time.
template <class T>
class HeadForward {
 public:
  HeadForward(const AttentionGeometry& o, const AttentionChanges& c, const Operand<T>& y,
              const Kept<T>& kept, const Operands<T>& x)
      : o_(o), c_(c), y_(y), kept_(kept), x_(x) {}

  std::int64_t room() const {
    return rows_lead + held_ * step_ + Across<T>::room(o_.keys, o_.width) +
           Rows<T>::room(o_.keys, o_.width);
  }

  void operator()(const Head& head, T* room) const {
    T* scores = room + rows_lead;
    T* copies = scores + held_ * step_;
    const Across<T> keys = across(o_, x_.k, head, copies);
    const Rows<T> values = rows_of(o_, x_.v, head, copies + Across<T>::room(o_.keys, o_.width));
    Dropping<T> dropping(o_, c_, o_.keys);
    for (std::int64_t begin = 0; begin < o_.queries; begin += held_) {
      const std::int64_t end = std::min(o_.queries, begin + held_);
      multiply_seen(o_, scores, step_, x_.q, head, keys, begin, end, 0, o_.keys);
      for (std::int64_t first = begin; first < end; first += attention_block) {
        share(head, dropping, scores + (first - begin) * step_, first,
              std::min(attention_block, end - first));
        for (const Operand<T>& x : {x_.q, x_.k, x_.v, y_}) {
          ask_for_next(o_, x, head, first, first + attention_block);
        }
      }
      weigh(head, weights(head, scores, begin), values, begin, end);
    }
  }

 private:
  // Shares of n queries from `first` on.
  void share(const Head& head, Dropping<T>& dropping, T* scores, std::int64_t first,
             std::int64_t n) const {
    const std::int64_t at = head.number * o_.queries + first;
    const ScoreRows<T> rows{scores, step_, first, n, 0, seen(o_, first + n - 1)};
    const RowSums<T> sums = kept_.sums.from(at);
    if (c_.mask.defined()) {
      masked_softmax_rows(o_, c_, head, sums, rows);
    } else if (kept_.sums) {
      softmax_rows(o_, scores, step_, rows.keys, sums, rows, score_scale(o_));
    } else {
      // Backward reads no further than what a whole block sees, however few queries this one has.
      const std::int64_t filled =
          std::min(o_.keys, vectors<T>(seen(o_, first + attention_block - 1)));
      softmax_rows(o_, kept_.shares + at * o_.keys, o_.keys, filled, sums, rows, score_scale(o_));
    }
    for (std::int64_t i = 0; i < n && c_.drops(); ++i) {
      dropping.draw(head, rows, i);
      dropping.drop(rows.row(i));
    }
  }

  // Of queries from `begin` on.
  Rows<T> weights(const Head& head, const T* scores, std::int64_t begin) const {
    if (kept_.sums) return {scores, step_};
    return {kept_.shares + (head.number * o_.queries + begin) * o_.keys, o_.keys};
  }

  // Queries' results, the sums of as many values at a time as a cache holds.
  void weigh(const Head& head, const Rows<T>& weights, const Rows<T>& values, std::int64_t begin,
             std::int64_t end) const {
    T* y = y_.of(head);
    for (std::int64_t key = 0; key < o_.keys; key += tile_keys) {
      const std::int64_t wide = std::min(tile_keys, o_.keys - key);
      each_block(o_, begin, end, key, wide,
                 [&](std::int64_t first, std::int64_t n, std::int64_t visible) {
                   T* sums = y + first * y_.row;
                   product_loops<T>().multiply(
                       sums, weights.at + (first - begin) * weights.step + key,
                       values.at + key * values.step, key > 0 ? sums : nullptr,
                       {n, o_.width, visible, weights.step, 1, values.step, y_.row, y_.row});
                 });
    }
  }

  const AttentionGeometry& o_;
  const AttentionChanges& c_;
  const Operand<T>& y_;
  const Kept<T>& kept_;
  const Operands<T>& x_;
  const std::int64_t step_ = padded<T>(o_.keys);
  const std::int64_t held_ = std::min(held_queries(step_), o_.queries);
};

template <class T>
void forward(const AttentionGeometry& o, const AttentionChanges& c, const Operand<T>& y,
             const Kept<T>& kept, const Operands<T>& x) {
  const HeadForward<T> head(o, c, y, kept, x);
  each_head<T>(o, head.room(), head);
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
