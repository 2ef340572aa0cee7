// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/autograd/ops/strided.h>

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
  const Tensor sees = gt(most, number(-INFINITY));
  const Tensor p = softmax(where(sees, scores, number(0)));
  return where(sees, p, full({}, 0, p.dtype(), p.device()));
}

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
  const bool plain = !options.attn_mask.defined() && options.dropout_p == 0 &&
                     v.shape() == k.shape() && same_leading(q, k) && q.numel() > 0 && k.numel() > 0;
  if (!plain) {
    const Tensor p = dropout(attention_probabilities(q, k, options), options.dropout_p);
    return matmul(p.dtype() == v.dtype() ? p : cast(p, v.dtype()), v);
  }
  const double factor = scale_of(q, options) * std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor scaled = options.scale ? q * factor : q;
  return reshaped(scaled_dot_product_attention(as_batch(scaled), as_batch(k), as_batch(v), 1,
                                               options.is_causal),
                  q.shape());
}

}  // namespace peal
