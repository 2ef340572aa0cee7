// SPDX-License-Identifier: Apache-2.0
// Attention of bf16 by dot products of pairs (pairs.h), head by head as in attention.cpp: scores
// and what softmax makes of them are f32, and rounded to bf16 where they are multiplied again, as
// the shares that are kept are anyway. Of rows short enough that shares are kept, without a mask.
#include <peal/autograd/kernels/cpu/attention_heads.h>
#include <peal/autograd/kernels/cpu/attention_shares.h>
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/pairs.h>

#include <algorithm>

namespace peal::cpu {

#if defined(__x86_64__)

namespace {

using avx512bf16::Bf16Pair;
using avx512bf16::pair_columns;
using avx512bf16::pair_rows;
using avx512bf16::pair_step;

// Queries whose scores are held at once: whole blocks.
constexpr std::int64_t queries_at_once = 4 * attention_block;

std::int64_t half_of(std::int64_t n) { return (n + 1) / 2; }
std::uint16_t* bits_at(BFloat16* x) { return &x->bits; }
const Bf16Pair* pairs_at(const BFloat16* x) { return reinterpret_cast<const Bf16Pair*>(x); }

// On the left of a product: pairs of a row `step` apart, rows `row`.
struct LeftPairs {
  const Bf16Pair* at;
  std::int64_t row, step;
};
// On the right: panels of pair_columns columns, each of so many pairs.
struct RightPairs {
  const Bf16Pair* at;
  std::int64_t pairs;
};

// Pairs of two rows, column by column, of the first `count`; the last may be alone.
RightPairs join_head(const Operand<BFloat16>& x, const Head& head, std::int64_t width,
                     Bf16Pair* room, std::int64_t count) {
  const std::int64_t pairs = half_of(count);
  for (std::int64_t c = 0; c < width; c += pair_columns) {
    avx512bf16::join_rows(room + c * pairs, bits_at(x.of(head)) + c, x.row, count,
                          std::min(pair_columns, width - c));
  }
  return {room, pairs};
}

// Pairs of a row's own, whose columns the rows become.
RightPairs turn_head(const Operand<BFloat16>& x, const Head& head, std::int64_t width,
                     Bf16Pair* room) {
  for (std::int64_t i = 0; i < x.count; i += pair_columns) {
    // Pairs are whole elements here, which keep their bits.
    product_loops<float>().transpose(reinterpret_cast<float*>(room + i * width / 2),
                                     reinterpret_cast<const float*>(x.of(head) + i * x.row),
                                     std::min(pair_columns, x.count - i), width / 2, x.row / 2,
                                     pair_columns);
  }
  return {room, width / 2};
}

// What either takes of `rows` rows of `columns` columns.
std::int64_t room_of_pairs(std::int64_t rows, std::int64_t columns) {
  const auto panels = [](std::int64_t n) { return (n + pair_columns - 1) / pair_columns; };
  return pair_columns * std::max(half_of(rows) * panels(columns), half_of(columns) * panels(rows));
}

// n rows from `to` on, all its columns: left times right's pairs [first, last).
void multiply_head(BFloat16* to, std::int64_t row, std::int64_t n, std::int64_t width,
                   const LeftPairs& left, const RightPairs& right, std::int64_t first,
                   std::int64_t last) {
  for (std::int64_t c = 0; c < width; c += pair_columns) {
    avx512bf16::multiply_pairs(
        {nullptr, bits_at(to) + c}, left.at, right.at + c * right.pairs + first * pair_columns,
        nullptr, {n, std::min(pair_columns, width - c), last - first, left.row, left.step, row, 0});
  }
}

class PairedHeads {
 public:
  PairedHeads(const AttentionGeometry& o, const Tensor& shares)
      : o_(o), shares_(shares.data<BFloat16>()) {}

 protected:
  BFloat16* shares(const Head& head) const { return shares_ + head.number * o_.queries * o_.keys; }
  Tensor scores_room() const {
    return Tensor::empty({std::min(queries_at_once, o_.queries), step_}, DType::f32, Device{});
  }

  // f(begin, end) of the queries that are held at once.
  template <class F>
  void each_held(F&& f) const {
    for (std::int64_t begin = 0; begin < o_.queries; begin += queries_at_once) {
      f(begin, std::min(begin + queries_at_once, o_.queries));
    }
  }
  // Keys' or values' rows for weigh(): those that some query sees, as beside an odd one what nobody
  // sees would count as well, if with a share of 0, and it may be a NaN.
  RightPairs join_seen(const Operand<BFloat16>& x, const Head& head, Bf16Pair* room) const {
    return join_head(x, head, o_.width, room, seen(o_, o_.queries - 1));
  }
  // Products of queries [begin, end) of x with keys, where they are seen.
  void multiply_seen_pairs(float* out, const Operand<BFloat16>& x, const Head& head,
                           const RightPairs& keys, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t key = 0; key < o_.keys; key += pair_columns) {
      const std::int64_t wide = std::min(pair_columns, o_.keys - key);
      each_block(o_, begin, end, key, wide,
                 [&](std::int64_t first, std::int64_t n, std::int64_t m) {
                   avx512bf16::multiply_pairs({out + (first - begin) * step_ + key, nullptr},
                                              pairs_at(x.of(head) + first * x.row),
                                              keys.at + key * keys.pairs, nullptr,
                                              {n, m, keys.pairs, x.row / 2, 1, step_, 0});
                 });
    }
  }
  // Queries [begin, end) of `to`: the sums of values, weighed by rows of [queries, keys].
  void weigh(const Operand<BFloat16>& to, const Head& head, const BFloat16* weights,
             const RightPairs& values, std::int64_t begin, std::int64_t end) const {
    each_block(o_, begin, end, 0, o_.keys,
               [&](std::int64_t first, std::int64_t n, std::int64_t visible) {
                 multiply_head(to.of(head) + first * to.row, to.row, n, o_.width,
                               {pairs_at(weights + first * o_.keys), o_.keys / 2, 1}, values, 0,
                               half_of(visible));
               });
  }

  const AttentionGeometry& o_;
  BFloat16* const shares_;
  const std::int64_t step_ = padded<float>(o_.keys);
};

class PairedForward : PairedHeads {
 public:
  PairedForward(const AttentionGeometry& o, const AttentionResult& to, const Operands<BFloat16>& x)
      : PairedHeads(o, to.kept), y_(result<BFloat16>(o, to.y)), x_(x) {}

  void run() const { each_head<Bf16Pair>(o_, 2 * room_of_pairs(o_.keys, o_.width), *this); }

  void operator()(const Head& head, Bf16Pair* room) const {
    const RightPairs keys = turn_head(x_.k, head, o_.width, room);
    const RightPairs values = join_seen(x_.v, head, room + room_of_pairs(o_.keys, o_.width));
    const Tensor held = scores_room();
    float* scores = held.data<float>();
    BFloat16* const shares = this->shares(head);
    each_held([&](std::int64_t begin, std::int64_t end) {
      multiply_seen_pairs(scores, x_.q, head, keys, begin, end);
      for (std::int64_t first = begin; first < end; first += attention_block) {
        const std::int64_t n = std::min(attention_block, end - first);
        const ScoreRows<float> rows{scores + (first - begin) * step_, step_, first, n, 0,
                                    seen(o_, first + n - 1)};
        softmax_rows(o_, rows.at, step_, o_.keys, {}, rows, score_scale(o_));
      }
      for (std::int64_t i = begin; i < end; ++i) {
        width_loops<BFloat16>().narrow(shares + i * o_.keys, scores + (i - begin) * step_, o_.keys);
      }
      weigh(y_, head, shares, values, begin, end);
    });
  }

 private:
  const Operand<BFloat16> y_;
  const Operands<BFloat16> x_;
};

class PairedBackward : PairedHeads {
 public:
  PairedBackward(const AttentionGeometry& o, const Operands<BFloat16>& dx, const Tensor& dy,
                 const AttentionResult& from, const Operands<BFloat16>& x)
      : PairedHeads(o, from.kept), dx_(dx), dy_(result<BFloat16>(o, dy)), x_(x) {}

  void run() const { each_head<Bf16Pair>(o_, room_ + tiles_ + o_.queries * o_.keys / 2, *this); }

  void operator()(const Head& head, Bf16Pair* room) const {
    Bf16Pair* const tiles = room + room_;
    auto* const slopes = reinterpret_cast<BFloat16*>(tiles + tiles_);
    back_to_keys(dx_.v, head, shares(head), dy_, room, tiles);
    if (!dx_.q && !dx_.k) return;
    to_scores(head, turn_head(x_.v, head, o_.width, room), slopes);
    back_to_keys(dx_.k, head, slopes, x_.q, room, tiles);
    if (dx_.q) weigh(dx_.q, head, slopes, join_seen(x_.k, head, room), 0, o_.queries);
  }

 private:
  // The gradients of scores, as bf16 [queries, keys].
  void to_scores(const Head& head, const RightPairs& values, BFloat16* slopes) const {
    const Tensor held = scores_room(), row = Tensor::empty({o_.keys}, DType::f32, Device{});
    float *scores = held.data<float>(), *weights = row.data<float>();
    each_held([&](std::int64_t begin, std::int64_t end) {
      multiply_seen_pairs(scores, dy_, head, values, begin, end);
      for (std::int64_t i = begin; i < end; ++i) {
        float* const dx = scores + (i - begin) * step_;
        width_loops<BFloat16>().widen(weights, shares(head) + i * o_.keys, o_.keys);
        product_loops<float>().softmax_backward_scaled(dx, weights, score_scale(o_), seen(o_, i),
                                                       o_.keys);
        width_loops<BFloat16>().narrow(slopes + i * o_.keys, dx, o_.keys);
      }
    });
  }

  // Keys' (or values') sums of what queries have, weighed by [queries, keys].
  void back_to_keys(const Operand<BFloat16>& to, const Head& head, BFloat16* weights,
                    const Operand<BFloat16>& of, Bf16Pair* room, Bf16Pair* tiles) const {
    if (!to) return;
    const RightPairs rows = join_head(of, head, o_.width, room, of.count);
    avx512bf16::split_rows(tiles, bits_at(weights), o_.keys, o_.queries, o_.keys);
    for (std::int64_t j = 0; j < o_.keys; j += pair_rows) {
      // Before query j none sees these.
      const std::int64_t first = o_.causal ? std::min(j / 2, rows.pairs) : 0;
      multiply_head(to.of(head) + j * to.row, to.row, std::min(pair_rows, o_.keys - j), o_.width,
                    {tiles + (j / pair_rows * rows.pairs + first) * pair_step, 1, pair_step}, rows,
                    first, rows.pairs);
    }
  }

  const Operands<BFloat16> dx_;
  const Operand<BFloat16> dy_;
  const Operands<BFloat16> x_;
  const std::int64_t room_ = room_of_pairs(std::max(o_.queries, o_.keys), o_.width);
  const std::int64_t tiles_ =
      (o_.keys + pair_rows - 1) / pair_rows * half_of(o_.queries) * pair_step;
};

// Elements of a row that are multiplied come in pairs.
bool in_pairs(const AttentionGeometry& o, const AttentionResult& result) {
  return result.kept.dtype() == DType::bf16 && result.kept.dim() == 4 && o.width % 2 == 0 &&
         o.keys % 2 == 0 && multiplies_bf16_in_pairs();
}

}  // namespace

bool attention_bf16(const AttentionGeometry& o, const AttentionResult& to, const Tensor& q,
                    const Tensor& k, const Tensor& v) {
  if (!in_pairs(o, to)) return false;
  PairedForward(o, to, operands<BFloat16>(o, q, k, v)).run();
  return true;
}

bool attention_backward_bf16(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                             const Tensor& dv, const Tensor& dy, const AttentionResult& from,
                             const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!in_pairs(o, from)) return false;
  PairedBackward(o, operands<BFloat16>(o, dq, dk, dv), dy, from, operands<BFloat16>(o, q, k, v))
      .run();
  return true;
}

bool self_attention_bf16(const AttentionGeometry& o, const AttentionResult& to, const Tensor& qkv) {
  if (!in_pairs(o, to)) return false;
  PairedForward(o, to, operands<BFloat16>(o, qkv)).run();
  return true;
}

bool self_attention_backward_bf16(const AttentionGeometry& o, const Tensor& dqkv, const Tensor& dy,
                                  const AttentionResult& from, const Tensor& qkv) {
  if (!in_pairs(o, from)) return false;
  PairedBackward(o, operands<BFloat16>(o, dqkv), dy, from, operands<BFloat16>(o, qkv)).run();
  return true;
}

#else

bool attention_bf16(const AttentionGeometry&, const AttentionResult&, const Tensor&, const Tensor&,
                    const Tensor&) {
  return false;
}
bool attention_backward_bf16(const AttentionGeometry&, const Tensor&, const Tensor&, const Tensor&,
                             const Tensor&, const AttentionResult&, const Tensor&, const Tensor&,
                             const Tensor&) {
  return false;
}
bool self_attention_bf16(const AttentionGeometry&, const AttentionResult&, const Tensor&) {
  return false;
}
bool self_attention_backward_bf16(const AttentionGeometry&, const Tensor&, const Tensor&,
                                  const AttentionResult&, const Tensor&) {
  return false;
}

#endif

}  // namespace peal::cpu
