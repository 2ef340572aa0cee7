// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/attention_of_heads.h>
#include <peal/autograd/ops/changed_attention.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/dropout_draw.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <cmath>

namespace peal {
namespace {

// Where attention's result goes, for q's dtype and device.
AttentionResult room_for(const AttentionGeometry& o, const Tensor& q, bool changed = false) {
  const auto recomputes = kernels(q.device()).attention_recomputes;
  const Tensor y = Tensor::empty({o.batch, o.queries, o.heads * o.width}, q.dtype(), q.device());
  if (changed || (recomputes != nullptr && recomputes(o, q.dtype()))) {
    // With a mask a row's largest score may absorb what is added to it, so it is kept apart.
    const std::int64_t numbers = kernels(q.device()).changed_attention ? 2 : 1;
    return {y, Tensor::empty({numbers, o.batch * o.heads, o.queries}, computed_in(q.dtype()),
                             q.device())};
  }
  return {y, Tensor::empty({o.batch, o.heads, o.queries, o.keys}, q.dtype(), q.device())};
}

// What of it waits for backward.
class SavedResult {
 public:
  explicit SavedResult(const AttentionResult& result)
      : y_(result.kept.dim() == 3 ? result.y : Tensor()), kept_(result.kept) {}
  AttentionResult operator()() const { return {y_(), kept_()}; }

 private:
  Saved y_, kept_;
};

// [B, T, heads D] as [B, heads, T, D], and back.
Tensor apart(const Tensor& x, std::int64_t heads) {
  return permute(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), {0, 2, 1, 3});
}
Tensor together(const Tensor& x) {
  return reshape(as_result(permute(x, {0, 2, 1, 3})),
                 {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

// The gradients as ops, to be differentiated in turn, of whole scores [..., T, S].
Tensors gradients_of_ops(const AttentionGeometry& o, const AttentionChanges& c, const Shape& scores,
                         const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(o.width));
  const auto leading = [&](const Tensor& x) {
    Shape shape = scores;
    shape[-2] = x.size(1);
    shape[-1] = o.width;
    return reshape(apart(x, o.heads), shape);
  };
  const auto back = [&](const Tensor& x) {
    return together(reshape(x, {o.batch, o.heads, x.size(-2), o.width}));
  };
  const Tensor queries = leading(q), keys = leading(k), values = leading(v), gradient = leading(g);
  const Tensor p =
      attention_probabilities(queries, keys, {.attn_mask = c.mask, .is_causal = o.causal});
  Tensor weights = p, dp = matmul(gradient, values, false, true);
  if (c.drops()) {
    const Tensor kept =
        dropped(ones(scores, p.dtype(), p.device()), {c.words, c.threshold, c.factor});
    weights = p * kept;
    dp = dp * kept;
  }
  const Tensor dscores = p * (dp - sum(dp * p, {-1}, true)) * scale;
  return {back(matmul(dscores, keys)), back(matmul(dscores, queries, true)),
          back(matmul(weights, gradient, true))};
}

// Error where these are no queries, keys and values of as many heads.
void check_heads(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v,
                 std::int64_t heads) {
  check_alike(op, q, k);
  check_alike(op, q, v);
  PEAL_CHECK(q.dim() == 3 && k.dim() == 3 && k.shape() == v.shape() && q.size(0) == k.size(0) &&
                 q.size(2) == k.size(2),
             op, ": expected q [B, T, H D] and k, v [B, S, H D], got shapes ", q.shape(), ", ",
             k.shape(), " and ", v.shape());
  PEAL_CHECK(heads >= 1 && q.size(2) % heads == 0 && q.numel() > 0 && k.numel() > 0, op, ": ",
             heads, " heads do not divide shapes ", q.shape(), " and ", k.shape());
}

// The same of all three side by side.
void check_heads(const Tensor& qkv, std::int64_t heads) {
  PEAL_CHECK(qkv.dim() == 3 && qkv.numel() > 0 && heads >= 1 && qkv.size(2) % (3 * heads) == 0,
             "self_attention: expected qkv [B, T, 3 H D] for H = ", heads, ", got shape ",
             qkv.shape());
}

}  // namespace

bool drops_inside(Device device, double p) {
  return p > 0 && p < 1 && kernels(device).changed_attention;
}

AttentionChanges with_dropout(AttentionChanges changes, const Shape& scores, double p) {
  if (p == 0) return changes;
  const DropoutDraw draw = draw_dropout(scores.numel(), p);
  changes.words = draw.words;
  changes.threshold = draw.threshold;
  changes.factor = draw.factor;
  return changes;
}

Tensor changed_attention(std::string_view op, const AttentionGeometry& o,
                         const AttentionChanges& changes, const Shape& scores, const Tensor& q,
                         const Tensor& k, const Tensor& v) {
  TraceSpan span(op);
  const AttentionResult result = room_for(o, q, changes.any());
  const Kernels& here = kernels(q.device());
  if (changes.any()) {
    here.changed_attention(op, q, o, changes, result, q, k, v);
  } else {
    here.attention(op, q, o, result, q, k, v);
  }
  AttentionChanges rest = changes;
  rest.mask = Tensor();
  return record(op, result.y, {q, k, v},
                [o, op, scores, rest, mask = save(changes.mask), saved = SavedResult(result),
                 q = save(q), k = save(k), v = save(v)](const Tensor& g, Needs needs) {
                  AttentionChanges c = rest;
                  c.mask = mask();
                  if (backward_is_recorded()) {
                    return gradients_of_ops(o, c, scores, g, q(), k(), v());
                  }
                  const auto like = [&](const Tensor& x) {
                    return Tensor::empty(x.shape(), g.dtype(), g.device());
                  };
                  Tensors grads(3);
                  if (needs[0]) grads[0] = like(q());
                  if (needs[1]) grads[1] = like(k());
                  if (needs[2]) grads[2] = like(v());
                  const Kernels& table = kernels(g.device());
                  if (c.any()) {
                    table.changed_attention_backward(op, g, o, c, grads[0], grads[1], grads[2], g,
                                                     saved(), q(), k(), v());
                  } else {
                    table.attention_backward(op, g, o, grads[0], grads[1], grads[2], g, saved(),
                                             q(), k(), v());
                  }
                  return grads;
                });
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    std::int64_t heads, bool causal, double dropout) {
  if (lowers(q, k, v)) {
    return scaled_dot_product_attention(lowered(q), lowered(k), lowered(v), heads, causal, dropout);
  }
  constexpr std::string_view op = "scaled_dot_product_attention";
  const OpName name(op);
  check_heads(op, q, k, v, heads);
  const AttentionGeometry o{q.size(0), q.size(1), k.size(1), heads, q.size(2) / heads, causal};
  const Shape scores{o.batch, o.heads, o.queries, o.keys};
  if (dropout != 0 && !drops_inside(q.device(), dropout)) {
    const Tensor p =
        attention_probabilities(apart(q, heads), apart(k, heads), {.is_causal = causal});
    return together(matmul(peal::dropout(p, dropout), apart(v, heads)));
  }
  return changed_attention(op, o, with_dropout({}, scores, dropout), scores, q, k, v);
}

Tensor attention_of_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t heads,
                          bool causal, double dropout, const HeadsOf& place) {
  if (lowers(q, k, v)) {
    return attention_of_heads(lowered(q), lowered(k), lowered(v), heads, causal, dropout, place);
  }
  constexpr std::string_view op = "scaled_dot_product_attention";
  const OpName name(op);
  check_heads(op, q, k, v, heads);
  PEAL_CHECK(place.first >= 0 && place.first + heads <= place.all && place.first % heads == 0 &&
                 place.all % heads == 0,
             op, ": heads ", place.first, " to ", place.first + heads - 1,
             " are none of the equal parts of ", place.all);
  if (dropout == 0 || dropout == 1 || heads == place.all) {
    return scaled_dot_product_attention(q, k, v, heads, causal, dropout);
  }
  const std::int64_t batch = q.size(0), queries = q.size(1), keys = k.size(1);
  if (!drops_inside(q.device(), dropout) || queries * keys % 4 != 0) {  // words come by four
    const Tensor p =
        attention_probabilities(apart(q, heads), apart(k, heads), {.is_causal = causal});
    const Tensor rest = dropout_of_part(p, dropout, 1, place.first / heads, place.all / heads);
    return together(matmul(rest, apart(v, heads)));
  }
  const DropoutDraw draw = draw_dropout(batch * place.all * queries * keys, dropout);
  // The words of a row's heads lie together, and of the next row's behind those of all heads.
  const AttentionGeometry row{1, queries, keys, heads, q.size(2) / heads, causal};
  Tensors rows;
  for (std::int64_t b = 0; b < batch; ++b) {
    AttentionChanges changes;
    changes.words = draw.words;
    changes.words.offset +=
        static_cast<std::uint64_t>((b * place.all + place.first) * queries * keys);
    changes.threshold = draw.threshold;
    changes.factor = draw.factor;
    rows.push_back(changed_attention(op, row, changes, {1, heads, queries, keys},
                                     narrow(q, 0, b, 1), narrow(k, 0, b, 1), narrow(v, 0, b, 1)));
  }
  return cat(rows, 0);
}

Tensor self_attention(const Tensor& qkv, std::int64_t heads, bool causal, double dropout) {
  if (lowers(qkv)) return self_attention(lowered(qkv), heads, causal, dropout);
  constexpr std::string_view op = "self_attention";
  const OpName name(op);
  check_heads(qkv, heads);
  const std::int64_t width = qkv.size(2) / 3;
  if (dropout != 0 || !kernels(qkv.device()).self_attention) {
    const Tensors parts = split(qkv, width, -1);
    return scaled_dot_product_attention(parts[0], parts[1], parts[2], heads, causal, dropout);
  }
  TraceSpan span(op);
  const AttentionGeometry o{qkv.size(0), qkv.size(1), qkv.size(1), heads, width / heads, causal};
  const AttentionResult result = room_for(o, qkv);
  kernels(qkv.device()).self_attention(op, qkv, o, result, qkv);
  return record(
      op, result.y, {qkv}, [o, op, saved = SavedResult(result), qkv = save(qkv)](const Tensor& g) {
        if (backward_is_recorded()) {
          const Tensors parts = split(qkv(), o.heads * o.width, -1);
          const Shape scores{o.batch, o.heads, o.queries, o.keys};
          return cat(gradients_of_ops(o, {}, scores, g, parts[0], parts[1], parts[2]), -1);
        }
        const Tensor grad = Tensor::empty(qkv().shape(), g.dtype(), g.device());
        kernels(g.device()).self_attention_backward(op, g, o, grad, g, saved(), qkv());
        return grad;
      });
}

}  // namespace peal
