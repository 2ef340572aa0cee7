// SPDX-License-Identifier: Apache-2.0
// Losses over classes: weights, [N, C, d...], probabilities as targets, margins between classes.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

using How = std::pair<Reduction, const char*>;
constexpr How hows[] = {
    {Reduction::none, "none"}, {Reduction::mean, "mean"}, {Reduction::sum, "sum"}};

// Of five classes: every second is the next, and each third of them -100.
Tensor classes(const Shape& shape, bool with_ignored) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    values.push_back(with_ignored && i % 3 == 1 ? -100 : i * 2 % 5);
  }
  return Tensor::from(values, shape);
}

// What each class counts, in x's type.
Tensor five(const Tensor& x) {
  return cast(Tensor::from(std::vector<double>{0.5, 1, 2, 0.25, 1.5}, {5}), x.dtype());
}
const std::string five_in_torch = "x[0].new_tensor([0.5, 1, 2, 0.25, 1.5])";

void add_classes(std::vector<OpCase>& all, const Shape& scores, const Shape& places, bool ignored) {
  for (const auto& [reduction, name] : hows) {
    for (const bool weighted : {false, true}) {
      const std::string weight = weighted ? five_in_torch : "None";
      const std::string rest = concat("weight=", weight, ", reduction='", name, "'");
      all.push_back({"F.nll_loss(x[0], k[0], " + rest + ")",
                     [reduction = reduction, weighted](const Tensors& x, const Tensors& k) {
                       const Tensor weight = weighted ? five(x[0]) : Tensor();
                       return nll_loss(x[0], k[0], {.weight = weight, .reduction = reduction});
                     },
                     {{scores}},
                     {classes(places, ignored)}});
      for (const double smoothing : {0.0, 0.25}) {
        all.push_back(
            {concat("F.cross_entropy(x[0], k[0], label_smoothing=", smoothing, ", ", rest, ")"),
             [reduction = reduction, weighted, smoothing](const Tensors& x, const Tensors& k) {
               CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smoothing};
               if (weighted) options.weight = five(x[0]);
               return cross_entropy(x[0], k[0], options);
             },
             {{scores}},
             {classes(places, ignored)}});
      }
    }
  }
}

void add_probabilities(std::vector<OpCase>& all) {
  for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 5, 3}}) {
    const int dim = shape.dim() > 1 ? 1 : 0;
    for (const auto& [reduction, name] : hows) {
      for (const double smoothing : {0.0, 0.25}) {
        for (const bool weighted : {false, true}) {
          if (weighted && smoothing == 0 && dim == 0) continue;
          all.push_back(
              {concat("F.cross_entropy(x[0], torch.softmax(x[1], ", dim,
                      "), label_smoothing=", smoothing, ", reduction='", name,
                      "', weight=", weighted ? five_in_torch : "None", ")"),
               [reduction = reduction, smoothing, weighted, dim](const Tensors& x, const Tensors&) {
                 CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smoothing};
                 if (weighted) options.weight = five(x[0]);
                 return cross_entropy(x[0], softmax(x[1], dim), options);
               },
               {{shape}, {shape}}});
        }
      }
    }
  }
}

void add_margins(std::vector<OpCase>& all) {
  const Tensor target = classes({4}, false);
  // 2 of row 0; none; 0, 3; all.
  const Tensor lists = Tensor::from<std::int64_t>(
      {2, -1, 0, 1, 2, -1, 0, 1, 2, 3, 0, 3, -1, 4, 4, 4, 3, 2, 1, 0}, {4, 5});
  for (const auto& [reduction, name] : hows) {
    for (const int p : {1, 2}) {
      for (const bool weighted : {false, true}) {
        all.push_back({concat("F.multi_margin_loss(x[0], k[0], ", p, ", 0.75, ",
                              weighted ? five_in_torch : "None", ", reduction='", name, "')"),
                       [reduction = reduction, p, weighted](const Tensors& x, const Tensors& k) {
                         const Tensor weight = weighted ? five(x[0]) : Tensor();
                         return multi_margin_loss(
                             x[0], k[0],
                             {.p = p, .margin = 0.75, .weight = weight, .reduction = reduction});
                       },
                       {{{4, 5}}},
                       {target}});
      }
    }
    all.push_back({concat("F.multilabel_margin_loss(x[0], k[0], reduction='", name, "')"),
                   [reduction = reduction](const Tensors& x, const Tensors& k) {
                     return multilabel_margin_loss(x[0], k[0], reduction);
                   },
                   {{{4, 5}}},
                   {lists}});
    for (const bool weighted : {false, true}) {
      all.push_back({concat("F.multilabel_soft_margin_loss(x[0], torch.sigmoid(x[1]), ",
                            weighted ? five_in_torch : "None", ", reduction='", name, "')"),
                     [reduction = reduction, weighted](const Tensors& x, const Tensors&) {
                       const Tensor weight = weighted ? five(x[0]) : Tensor();
                       return multilabel_soft_margin_loss(
                           x[0], sigmoid(x[1]), {.weight = weight, .reduction = reduction});
                     },
                     {{{3, 5}}, {{3, 5}}}});
    }
  }
}

}  // namespace

std::vector<OpCase> class_loss_cases() {
  std::vector<OpCase> all;
  add_classes(all, {4, 5}, {4}, true);
  add_classes(all, {2, 5, 3}, {2, 3}, true);
  add_classes(all, {2, 5, 2, 3}, {2, 2, 3}, false);
  add_classes(all, {5}, {}, false);
  add_probabilities(all);
  add_margins(all);
  return all;
}

}  // namespace peal::test
