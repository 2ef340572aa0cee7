// SPDX-License-Identifier: Apache-2.0
// Products of batches, softmax, normalisations, attention.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

void add_products(std::vector<OpCase>& all) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const auto add = [&](Shape a, Shape b) {
        if (ta) std::swap(a[-1], a[-2]);
        if (tb) std::swap(b[-1], b[-2]);
        all.push_back(
            {concat("torch.matmul(x[0]", ta ? ".transpose(-1, -2)" : "", ", x[1]",
                    tb ? ".transpose(-1, -2)" : "", ")"),
             [ta, tb](const Tensors& x, const Tensors&) { return matmul(x[0], x[1], ta, tb); },
             {{a}, {b}}});
      };
      add({3, 2, 5}, {3, 5, 7});
      add({2, 3, 1, 5}, {2, 3, 5, 3});
      add({2, 3, 4, 5}, {5, 3});
      add({4, 5}, {3, 5, 2});
      add({2, 1, 4, 5}, {3, 5, 2});
    }
  }
}

void add_softmax(std::vector<OpCase>& all) {
  const std::vector<std::pair<Shape, int>> cases = {
      {{7}, 0},        {{3, 5}, -1},    {{3, 5}, 0}, {{33, 67}, -1},
      {{2, 3, 67}, 2}, {{2, 33, 3}, 1}, {{3, 1}, 1}};
  for (const auto& [shape, dim] : cases) {
    all.push_back(
        {concat("torch.softmax(x[0] * 3, ", dim, ")"),
         [dim = dim](const Tensors& x, const Tensors&) { return softmax(x[0] * 3.0, dim); },
         {{shape}}});
    all.push_back(
        {concat("torch.log_softmax(x[0] * 3, ", dim, ")"),
         [dim = dim](const Tensors& x, const Tensors&) { return log_softmax(x[0] * 3.0, dim); },
         {{shape}}});
  }
}

void add_layer_norm(std::vector<OpCase>& all) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{5}, {5}}, {{3, 17}, {17}}, {{2, 3, 67}, {67}}, {{2, 3, 5}, {3, 5}}, {{33, 4}, {4}}};
  for (const auto& [x, norm] : cases) {
    const std::string sizes = "x[0].shape[-" + std::to_string(norm.dim()) + ":]";
    all.push_back({"F.layer_norm(x[0], " + sizes + ", x[1], x[2])",
                   [norm = norm](const Tensors& t, const Tensors&) {
                     return layer_norm(t[0], norm, t[1], t[2]);
                   },
                   {{x}, {norm}, {norm}}});
    all.push_back({"F.layer_norm(x[0], " + sizes + ", x[1], None, 0.5)",
                   [norm = norm](const Tensors& t, const Tensors&) {
                     return layer_norm(t[0], norm, t[1], {}, 0.5);
                   },
                   {{x}, {norm}}});
    all.push_back({"F.layer_norm(x[0], " + sizes + ", None, x[1])",
                   [norm = norm](const Tensors& t, const Tensors&) {
                     return layer_norm(t[0], norm, {}, t[1]);
                   },
                   {{x}, {norm}}});
    all.push_back(
        {"F.layer_norm(x[0], " + sizes + ")",
         [norm = norm](const Tensors& t, const Tensors&) { return layer_norm(t[0], norm); },
         {{x}}});
  }
}

void add_batch_norm(std::vector<OpCase>& all) {
  for (const Shape& shape :
       {Shape{7, 3}, Shape{3, 5, 7}, Shape{2, 3, 5, 9}, Shape{2, 1, 2, 3, 2}}) {
    const Shape c{shape[1]};
    all.push_back({"F.batch_norm(x[0], None, None, x[1], x[2], True)",
                   [](const Tensors& x, const Tensors&) {
                     return batch_norm(x[0], {}, {}, x[1], x[2], {.training = true});
                   },
                   {{shape}, {c}, {c}}});
    all.push_back({"F.batch_norm(x[0], None, None, None, None, True, 0.1, 0.25)",
                   [](const Tensors& x, const Tensors&) {
                     return batch_norm(x[0], {}, {}, {}, {}, {.training = true, .eps = 0.25});
                   },
                   {{shape}}});
    all.push_back(
        {"F.batch_norm(x[0], torch.full_like(x[1], 0.5).detach(), torch.full_like(x[1], 2), x[1], "
         "x[2])",
         [](const Tensors& x, const Tensors&) {
           return batch_norm(x[0], full(x[1].shape(), 0.5, x[0].dtype()),
                             full(x[1].shape(), 2, x[0].dtype()), x[1], x[2]);
         },
         {{shape}, {c}, {c}}});
  }
}

void add_attention(std::vector<OpCase>& all) {
  struct Case {
    std::int64_t batch, queries, keys, heads, width;
  };
  for (const Case& c :
       {Case{1, 1, 1, 1, 1}, Case{2, 5, 5, 3, 4}, Case{1, 17, 17, 2, 3}, Case{2, 3, 7, 2, 5},
        Case{1, 7, 3, 1, 4},
        // more queries than a block of the kernel, and than one of its backward
        Case{1, 70, 70, 2, 3}, Case{1, 131, 67, 1, 2}, Case{1, 67, 131, 1, 2},
        Case{1, 300, 300, 2, 16}, Case{1, 301, 160, 1, 64}, Case{1, 160, 301, 1, 33}}) {
    for (const bool causal : {false, true}) {
      const std::string heads =
          concat("unflatten(-1, (", c.heads, ", ", c.width, ")).transpose(1, 2)");
      const std::string mask =
          causal
              ? ".masked_fill(torch.ones(x[0].shape[1], x[1].shape[1]).triu(1).bool(), -torch.inf)"
              : "";
      all.push_back(
          {concat("(((x[0].", heads, " @ x[1].", heads, ".transpose(-1, -2)) / ", c.width,
                  " ** 0.5)", mask, ".softmax(-1) @ x[2].", heads, ").transpose(1, 2).flatten(2)"),
           [heads = c.heads, causal](const Tensors& x, const Tensors&) {
             return scaled_dot_product_attention(x[0], x[1], x[2], heads, causal);
           },
           {{{c.batch, c.queries, c.heads * c.width}},
            {{c.batch, c.keys, c.heads * c.width}},
            {{c.batch, c.keys, c.heads * c.width}}}});
      if (c.queries != c.keys) continue;
      const auto part = [&](int i) {
        return concat("x[0].unflatten(-1, (3, ", c.heads, ", ", c.width, "))[:, :, ", i,
                      "].transpose(1, 2)");
      };
      const std::string own =
          causal
              ? ".masked_fill(torch.ones(x[0].shape[1], x[0].shape[1]).triu(1).bool(), -torch.inf)"
              : "";
      all.push_back(
          {concat("(((", part(0), " @ ", part(1), ".transpose(-1, -2)) / ", c.width, " ** 0.5)",
                  own, ".softmax(-1) @ ", part(2), ").transpose(1, 2).flatten(2)"),
           [heads = c.heads, causal](const Tensors& x, const Tensors&) {
             return self_attention(x[0], heads, causal);
           },
           {{{c.batch, c.queries, 3 * c.heads * c.width}}}});
    }
  }
}

}  // namespace

std::vector<OpCase> layer_cases() {
  std::vector<OpCase> all;
  add_products(all);
  add_softmax(all);
  add_layer_norm(all);
  add_batch_norm(all);
  add_attention(all);
  return all;
}

}  // namespace peal::test
