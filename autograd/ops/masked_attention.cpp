// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/changed_attention.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {
namespace {

constexpr std::string_view attention_op = "scaled_dot_product_attention";

void check_queries(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  check_alike(attention_op, q, k);
  check_floating(attention_op, q);
  PEAL_CHECK(q.dim() >= 2 && k.dim() >= 2 && q.size(-1) == k.size(-1) && q.size(-1) > 0,
             attention_op, ": expected q [..., L, E] and k [..., S, E], got shapes ", q.shape(),
             " and ", k.shape());
  PEAL_CHECK(!o.is_causal || !o.attn_mask.defined(), attention_op,
             ": is_causal is a mask, and does not go beside attn_mask");
}

double scale_of(const Tensor& q, const AttentionOptions& o) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

// Each head as often as there are heads of q for it.
Tensor repeated_heads(const Tensor& x, const Tensor& q) {
  PEAL_CHECK(x.dim() == q.dim() && x.dim() >= 3 && x.size(-3) > 0 && q.size(-3) % x.size(-3) == 0,
             attention_op, ": enable_gqa: the heads of shape ", x.shape(),
             " do not divide those of ", q.shape());
  const std::int64_t times = q.size(-3) / x.size(-3);
  if (times == 1) return x;
  Shape one, many, flat = x.shape();
  for (int i = 0; i < x.dim(); ++i) {
    if (i == x.dim() - 2) {
      one.push_back(1);
      many.push_back(times);
    }
    one.push_back(x.size(i));
    many.push_back(x.size(i));
  }
  flat[-3] = q.size(-3);
  return reshaped(expand_to(reshaped(x, one), many), flat);
}

bool same_leading(const Tensor& a, const Tensor& b) {
  bool same = a.dim() == b.dim();
  for (int i = 0; same && i < a.dim() - 2; ++i) same = a.size(i) == b.size(i);
  return same;
}

// All leading dimensions as one, of one head each.
Tensor as_batch(const Tensor& x) {
  const std::int64_t rows = x.size(-2), width = x.size(-1);
  return reshaped(x, {x.numel() / (rows * width), rows, width});
}

Shape scores_of(const Tensor& q, const Tensor& k) {
  Shape scores = q.shape();
  scores[-1] = k.size(-2);
  return scores;
}

// Whether the kernel takes this mask: one without a gradient, that stretches to the scores in all
// but the keys.
bool takes_mask(const Tensor& q, const Shape& scores, const Tensor& mask) {
  if (!kernels(q.device()).changed_attention || wants_grad({&mask, 1})) return false;
  if (mask.device() != q.device()) return false;
  if (mask.dtype() != DType::boolean && !is_floating(mask.dtype())) return false;
  bool fits = mask.dim() >= 1 && mask.dim() <= scores.dim() && mask.size(-1) == scores[-1];
  for (int i = 2; fits && i <= mask.dim(); ++i) {
    fits = mask.size(-i) == 1 || mask.size(-i) == scores[-i];
  }
  return fits;
}

// Where each head's and each query's part of a mask lies.
AttentionChanges with_mask(const Tensor& q, const Shape& scores, const Tensor& mask) {
  AttentionChanges changes{.mask = mask.detach()};
  if (mask.dtype() != DType::boolean) {
    changes.mask = cast(changes.mask, computed_in(q.dtype()));
  }
  const auto stretched = [&](int i) { return -i > mask.dim() || mask.size(i) == 1; };
  changes.row = stretched(-2) ? 0 : mask.size(-1);
  changes.heads = {0};
  // From the first dimension on, the places in what is to the left, once for each of its elements.
  for (int i = -scores.dim(); i < -2; ++i) {
    std::int64_t step = stretched(i) ? 0 : 1;
    for (int j = i + 1; step != 0 && j < 0; ++j) step *= mask.size(j);
    std::vector<std::int64_t> places;
    for (const std::int64_t at : changes.heads) {
      for (std::int64_t n = 0; n < scores[i]; ++n) places.push_back(at + n * step);
    }
    changes.heads = std::move(places);
  }
  return changes;
}

}  // namespace

Tensor attention_probabilities(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  if (lowers(q, k)) return attention_probabilities(lowered(q), lowered(k), options);
  const OpName name(attention_op);
  check_queries(q, k, options);
  const Tensor keys = options.enable_gqa ? repeated_heads(k, q) : k;
  Tensor scores = matmul(q, keys, false, true) * scale_of(q, options);
  const auto number = [&](double value) {
    return full({}, value, scores.dtype(), scores.device());
  };
  if (options.is_causal) {
    const Tensor hidden = gt(arange(k.size(-2), DType::i64, k.device()),
                             unsqueeze(arange(q.size(-2), DType::i64, q.device()), 1));
    return softmax(where(hidden, number(-INFINITY), scores));
  }
  const Tensor& mask = options.attn_mask;
  if (!mask.defined()) return softmax(scores);
  PEAL_CHECK(mask.dtype() == DType::boolean || is_floating(mask.dtype()), attention_op,
             ": expected a mask of bool or a floating type, got ", mask.dtype(), " ", mask.shape());
  scores = mask.dtype() == DType::boolean ? where(mask, scores, number(-INFINITY))
                                          : scores + cast(mask, scores.dtype());
  // Where all keys are hidden, softmax would be of nothing.
  const Tensor most = max(scores.detach(), -1, true).values;
  const Tensor sees = ne(most, number(-INFINITY));  // a NaN is seen, as a result
  const Tensor p = softmax(where(sees, scores, number(0)));
  return where(sees, p, full({}, 0, p.dtype(), p.device()));
}

namespace {

// By ops, of whole scores; those of 16 bits in f32, as the kernels have theirs (and PyTorch 2.5).
Tensor by_scores(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  const DType type = v.dtype(), wide = computed_in(type);
  const Autocast off(DType::bf16, false);
  const Tensor weights =
      dropout(attention_probabilities(cast(q, wide), cast(k, wide), options), options.dropout_p);
  return cast(matmul(weights, cast(v, wide)), type);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  if (lowers(q, k, v)) {
    return scaled_dot_product_attention(lowered(q), lowered(k), lowered(v), options);
  }
  const OpName name(attention_op);
  check_queries(q, k, options);
  check_alike(attention_op, q, v);
  PEAL_CHECK(v.dim() >= 2 && v.size(-2) == k.size(-2), attention_op,
             ": expected k [..., S, E] and v [..., S, V], got shapes ", k.shape(), " and ",
             v.shape());
  if (options.enable_gqa) {
    AttentionOptions rest = options;
    rest.enable_gqa = false;
    return scaled_dot_product_attention(q, repeated_heads(k, q), repeated_heads(v, q), rest);
  }
  const double p = options.dropout_p;
  const Tensor& mask = options.attn_mask;
  const Shape scores = scores_of(q, k);
  const bool fits = v.shape() == k.shape() && same_leading(q, k) && q.numel() > 0 && k.numel() > 0;
  if (!fits || (p != 0 && !drops_inside(q.device(), p)) ||
      (mask.defined() && !takes_mask(q, scores, mask))) {
    return by_scores(q, k, v, options);
  }
  const double factor = scale_of(q, options) * std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor scaled = options.scale ? q * factor : q;
  const Tensor queries = as_batch(scaled), keys = as_batch(k), values = as_batch(v);
  const AttentionGeometry o{queries.size(0), q.size(-2),       k.size(-2), 1,
                            q.size(-1),      options.is_causal};
  const AttentionChanges masked = mask.defined() ? with_mask(q, scores, mask) : AttentionChanges();
  return reshaped(changed_attention(attention_op, o, with_dropout(masked, scores, p), scores,
                                    queries, keys, values),
                  q.shape());
}

}  // namespace peal
