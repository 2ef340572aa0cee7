// SPDX-License-Identifier: Apache-2.0
// Attention with masks, scales and grouped heads; rotary positions.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

// Row 1 sees nothing in `rows_hidden`.
Tensor mask_of(std::int64_t queries, std::int64_t keys, bool rows_hidden) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t j = 0; j < keys; ++j) {
      values.push_back((i * keys + j) % 3 != 1 && !(rows_hidden && i == 1));
    }
  }
  return cast(Tensor::from(values, {queries, keys}), DType::boolean);
}

// torch: an expression of q, k and v; newer: it calls what PyTorch 1.13 lacks.
void add(std::vector<OpCase>& all, const std::string& options, const AttentionOptions& o,
         const Shape& q, const Shape& k, const Shape& v, const Tensors& constants = {}) {
  all.push_back({"F.scaled_dot_product_attention(x[0], x[1], x[2]" + options + ")",
                 [o](const Tensors& x, const Tensors& constants) {
                   AttentionOptions chosen = o;
                   if (!constants.empty()) chosen.attn_mask = constants[0];
                   return scaled_dot_product_attention(x[0], x[1], x[2], chosen);
                 },
                 {{q}, {k}, {v}},
                 constants,
                 true,
                 "F.scaled_dot_product_attention"});
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> all;
  add(all, "", {}, {2, 3, 4}, {2, 5, 4}, {2, 5, 4});
  add(all, "", {}, {1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 3});
  add(all, ", is_causal=True", {.is_causal = true}, {1, 2, 5, 4}, {1, 2, 7, 4}, {1, 2, 7, 4});
  add(all, ", is_causal=True", {.is_causal = true}, {2, 5, 2}, {2, 3, 2}, {2, 3, 3});
  add(all, ", scale=0.25", {.scale = 0.25}, {2, 3, 4}, {2, 5, 4}, {2, 5, 4});
  add(all, ", k[0]", {}, {1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}, {mask_of(3, 5, false)});
  add(all, ", k[0]", {}, {2, 3, 4}, {2, 5, 4}, {2, 5, 4}, {mask_of(3, 5, true)});
  add(all, ", enable_gqa=True", {.enable_gqa = true}, {1, 4, 3, 2}, {1, 2, 5, 2}, {1, 2, 5, 2});
  add(all, ", is_causal=True, enable_gqa=True", {.is_causal = true, .enable_gqa = true},
      {1, 4, 3, 2}, {1, 1, 3, 2}, {1, 1, 3, 2});
  all.push_back({"F.scaled_dot_product_attention(x[0], x[1], x[2], x[3])",
                 [](const Tensors& x, const Tensors&) {
                   return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3]});
                 },
                 {{{2, 3, 4}}, {{2, 5, 4}}, {{2, 5, 4}}, {{3, 5}}},
                 {},
                 true,
                 "F.scaled_dot_product_attention"});
  const std::string angles =
      "(lambda a: (a.cos(), a.sin()))((torch.arange(5, dtype=torch.float64)[:, None] + 2) * 100 ** "
      "-(torch.arange(3, dtype=torch.float64) / 3))";
  all.push_back(
      {"(lambda c, s: torch.cat((x[0][..., :3] * c - x[0][..., 3:] * s, x[0][..., 3:] * c + "
       "x[0][..., :3] * s), -1))(*(t.to(x[0]) for t in " +
           angles + "))",
       [](const Tensors& x, const Tensors&) {
         return rotary_embedding(x[0], {.base = 100, .offset = 2});
       },
       {{{2, 5, 6}}}});
  all.push_back(
      {"(lambda c, s: torch.stack((x[0][..., ::2] * c - x[0][..., 1::2] * s, x[0][..., 1::2] "
       "* c + x[0][..., ::2] * s), -1).flatten(-2))(*(t.to(x[0]) for t in " +
           angles + "))",
       [](const Tensors& x, const Tensors&) {
         return rotary_embedding(x[0], {.base = 100, .offset = 2, .interleaved = true});
       },
       {{{2, 5, 6}}}});
  return all;
}

}  // namespace peal::test
