// SPDX-License-Identifier: Apache-2.0
// Losses of elements, pairs and triplets; distances.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

using How = std::pair<Reduction, const char*>;
constexpr How reductions[] = {
    {Reduction::none, "none"}, {Reduction::mean, "mean"}, {Reduction::sum, "sum"}};

Tensor signs(const Shape& shape) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(i % 3 == 0 ? -1 : 1);
  return Tensor::from(values, shape);
}

// `call` is F.name(...) without the reduction and the closing bracket.
struct Table {
  std::vector<OpCase>& all;
  template <class Op>
  void operator()(const std::string& call, const Op& op, std::vector<Input> inputs,
                  Tensors constants = {}, const std::string& needs = {}) const {
    for (const auto& [reduction, name] : reductions) {
      all.push_back({concat(call, ", reduction='", name, "')"),
                     [op, reduction = reduction](const Tensors& x, const Tensors& k) {
                       return op(x, k, reduction);
                     },
                     inputs, constants, true, needs});
    }
  }
};

void add_elements(const Table& add) {
  using In = const Tensors&;
  const std::vector<Input> two = {{{3, 7}}, {{3, 7}}};
  const std::vector<Input> three = {{{3, 7}}, {{3, 7}}, {{3, 7}, Values::positive}};
  add(
      "F.l1_loss(x[0], x[1]", [](In x, In, Reduction r) { return l1_loss(x[0], x[1], r); }, two);
  for (const double delta : {1.0, 0.25}) {
    add(
        concat("F.huber_loss(x[0], x[1], delta=", delta),
        [delta](In x, In, Reduction r) { return huber_loss(x[0], x[1], r, delta); }, two);
    add(
        concat("F.huber_loss(x[0], x[1], weight=x[2], delta=", delta),
        [delta](In x, In, Reduction r) { return huber_loss(x[0], x[1], x[2], r, delta); }, three,
        {}, "F.huber_loss(torch.ones(1), torch.ones(1), weight=torch.ones(1))");
  }
  add(
      "F.mse_loss(x[0], x[1], weight=x[2]",
      [](In x, In, Reduction r) { return mse_loss(x[0], x[1], x[2], r); }, three, {},
      "F.mse_loss(torch.ones(1), torch.ones(1), weight=torch.ones(1))");
  add(
      "F.l1_loss(x[0], x[1], weight=x[2]",
      [](In x, In, Reduction r) { return l1_loss(x[0], x[1], x[2], r); }, three, {},
      "F.l1_loss(torch.ones(1), torch.ones(1), weight=torch.ones(1))");
  // What elements count: i / 2 + 1 / 4 of integers.
  const auto weights = [](const Tensor& k, const Tensor& x) {
    return cast(k, x.dtype()) * 0.5 + 0.25;
  };
  const Tensor by_column = arange(7), by_row = reshape(arange(3), {3, 1});
  const std::string first = "k[0].to(x[0]) * 0.5 + 0.25", second = "k[1].to(x[0]) * 0.5 + 0.25";
  add("F.binary_cross_entropy_with_logits(x[0] * 3, x[1], pos_weight=" + first,
      [weights](In x, In k, Reduction r) {
        return binary_cross_entropy_with_logits(
            x[0] * 3.0, x[1], {.pos_weight = weights(k[0], x[0]), .reduction = r});
      },
      two, {by_column});
  add("F.binary_cross_entropy_with_logits(x[0], x[1], " + first,
      [weights](In x, In k, Reduction r) {
        return binary_cross_entropy_with_logits(x[0], x[1],
                                                {.weight = weights(k[0], x[0]), .reduction = r});
      },
      two, {by_row});
  add("F.binary_cross_entropy_with_logits(x[0], x[1], " + first + ", pos_weight=" + second,
      [weights](In x, In k, Reduction r) {
        return binary_cross_entropy_with_logits(
            x[0], x[1],
            {.weight = weights(k[0], x[0]), .pos_weight = weights(k[1], x[0]), .reduction = r});
      },
      two, {by_row, by_column});
  const std::vector<Input> scores = {{{3, 7}}};
  add("F.soft_margin_loss(x[0] * 4, k[0].to(x[0])",
      [](In x, In k, Reduction r) {
        return soft_margin_loss(x[0] * 4.0, cast(k[0], x[0].dtype()), r);
      },
      scores, {signs({3, 7})});
  add("F.hinge_embedding_loss(x[0], k[0].to(x[0]), 0.5",
      [](In x, In k, Reduction r) {
        return hinge_embedding_loss(x[0], cast(k[0], x[0].dtype()), 0.5, r);
      },
      scores, {signs({3, 7})});
}

void add_distributions(const Table& add) {
  using In = const Tensors&;
  const std::vector<Input> shares = {{{3, 7}, Values::positive}, {{3, 7}, Values::positive}};
  add(
      "F.binary_cross_entropy(x[0] / 4, x[1] / 4",
      [](In x, In, Reduction r) {
        return binary_cross_entropy(x[0] / 4.0, x[1] / 4.0, {.reduction = r});
      },
      shares);
  add("F.binary_cross_entropy(x[0] / 4, k[0].to(x[0]), k[0][:1].to(x[0]) + 0.5",
      [](In x, In k, Reduction r) {
        const Tensor wanted = cast(k[0], x[0].dtype());
        return binary_cross_entropy(x[0] / 4.0, wanted,
                                    {.weight = wanted.rows(0, 1) + 0.5, .reduction = r});
      },
      {shares[0]}, {gt(signs({3, 7}), Tensor::zeros({}, DType::i64))});
  const std::vector<Input> logs = {{{3, 7}}, {{3, 7}, Values::positive}};
  add(
      "F.kl_div(x[0], x[1]",
      [](In x, In, Reduction r) { return kl_div(x[0], x[1], {.reduction = r}); }, logs);
  add("F.kl_div(x[0], k[0].to(x[0])",
      [](In x, In k, Reduction r) {
        return kl_div(x[0], cast(k[0], x[0].dtype()), {.reduction = r});
      },
      {{{3, 7}}}, {gt(signs({3, 7}), Tensor::zeros({}, DType::i64))});
  add("F.kl_div(x[0], x[1], log_target=True",
      [](In x, In, Reduction r) {
        return kl_div(x[0], x[1], {.reduction = r, .log_target = true});
      },
      {{{3, 7}}, {{3, 7}}});
  add.all.push_back(
      {"F.kl_div(x[0], x[1], reduction='batchmean')",
       [](In x, In) { return kl_div(x[0], x[1], {.reduction = Reduction::batchmean}); }, logs});
  for (const bool full : {false, true}) {
    const std::string tail = full ? ", full=True" : "";
    add(
        "F.poisson_nll_loss(x[0], x[1] * 2" + tail,
        [full](In x, In, Reduction r) {
          return poisson_nll_loss(x[0], x[1] * 2.0, {.full = full, .reduction = r});
        },
        logs);
    add(
        "F.poisson_nll_loss(x[0], x[1] * 2, log_input=False, eps=0.125" + tail,
        [full](In x, In, Reduction r) {
          return poisson_nll_loss(x[0], x[1] * 2.0,
                                  {.log_input = false, .full = full, .eps = 0.125, .reduction = r});
        },
        shares);
    for (const Shape& variance : {Shape{3, 7}, Shape{3, 1}, Shape{3}}) {
      add("F.gaussian_nll_loss(x[0], x[1], x[2]" + tail,
          [full](In x, In, Reduction r) {
            return gaussian_nll_loss(x[0], x[1], x[2], {.full = full, .reduction = r});
          },
          {{{3, 7}}, {{3, 7}}, {variance, Values::positive}});
    }
  }
}

void add_pairs(const Table& add) {
  using In = const Tensors&;
  add("F.margin_ranking_loss(x[0], x[1], k[0].to(x[0]), 0.25",
      [](In x, In k, Reduction r) {
        return margin_ranking_loss(x[0], x[1], cast(k[0], x[0].dtype()), 0.25, r);
      },
      {{{17}}, {{17}}}, {signs({17})});
  add("F.cosine_embedding_loss(x[0], x[1], k[0].to(x[0]), 0.125",
      [](In x, In k, Reduction r) {
        return cosine_embedding_loss(x[0], x[1], cast(k[0], x[0].dtype()), 0.125, r);
      },
      {{{7, 5}}, {{7, 5}}}, {signs({7})});
  const std::vector<Input> triplets = {{{7, 5}}, {{7, 5}}, {{7, 5}}};
  for (const double p : {1.0, 2.0, 3.0}) {
    for (const bool swap : {false, true}) {
      add(
          concat("F.triplet_margin_loss(x[0], x[1], x[2], 0.5, ", p,
                 ", swap=", swap ? "True" : "False"),
          [p, swap](In x, In, Reduction r) {
            return triplet_margin_loss(x[0], x[1], x[2],
                                       {.margin = 0.5, .p = p, .swap = swap, .reduction = r});
          },
          triplets);
    }
  }
  add(
      "F.triplet_margin_with_distance_loss(x[0], x[1], x[2], swap=True, distance_function=lambda "
      "a, "
      "b: 1 - F.cosine_similarity(a, b)",
      [](In x, In, Reduction r) {
        const auto away = [](const Tensor& a, const Tensor& b) {
          return 1.0 - cosine_similarity(a, b);
        };
        return triplet_margin_with_distance_loss(x[0], x[1], x[2], away,
                                                 {.swap = true, .reduction = r});
      },
      triplets);
}

void add_distances(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, auto op, std::vector<Input> inputs) {
    all.push_back({std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x); },
                   std::move(inputs)});
  };
  for (const auto& [p, name] : {std::pair{1.0, "1"},
                                {2.0, "2"},
                                {3.0, "3"},
                                {std::numeric_limits<double>::infinity(), "torch.inf"}}) {
    add(concat("F.pairwise_distance(x[0], x[1], ", name, ")"),
        [p = p](const Tensors& x) { return pairwise_distance(x[0], x[1], p); },
        {{{7, 5}}, {{7, 5}}});
    add(concat("F.normalize(x[0], ", name, ")"),
        [p = p](const Tensors& x) { return normalize(x[0], p); }, {{{3, 5, 2}}});
  }
  add("F.pairwise_distance(x[0], x[1], eps=0.5, keepdim=True)",
      [](const Tensors& x) { return pairwise_distance(x[0], x[1], 2, 0.5, true); },
      {{{2, 3, 5}}, {{2, 3, 5}}});
  add("F.cosine_similarity(x[0], x[1])",
      [](const Tensors& x) { return cosine_similarity(x[0], x[1]); }, {{{3, 5}}, {{3, 5}}});
  add("F.cosine_similarity(x[0], x[1], -1)",
      [](const Tensors& x) { return cosine_similarity(x[0], x[1], -1); }, {{{3, 1, 5}}, {{2, 5}}});
  add("F.normalize(x[0], dim=-1)", [](const Tensors& x) { return normalize(x[0], 2, -1); },
      {{{3, 5}}});
}

}  // namespace

std::vector<OpCase> pair_loss_cases() {
  std::vector<OpCase> all;
  const Table add{all};
  add_elements(add);
  add_distributions(add);
  add_pairs(add);
  add_distances(all);
  return all;
}

}  // namespace peal::test
