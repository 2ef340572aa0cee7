// SPDX-License-Identifier: Apache-2.0
// Normalisations of groups, padding, shuffles, bags of embeddings.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

void add_group_norms(std::vector<OpCase>& all) {
  struct Case {
    Shape shape;
    std::int64_t groups;
  };
  for (const Case& c :
       {Case{{3, 8}, 2}, Case{{2, 6, 5}, 3}, Case{{2, 4, 3, 3}, 1}, Case{{2, 3, 2, 2, 2}, 3}}) {
    const Shape channels{c.shape[1]};
    const std::string call = concat("F.group_norm(x[0], ", c.groups);
    all.push_back({call + ", x[1], x[2])",
                   [g = c.groups](const Tensors& x, const Tensors&) {
                     return group_norm(x[0], g, x[1], x[2]);
                   },
                   {{c.shape}, {channels}, {channels}}});
    all.push_back({call + ", eps=0.5)",
                   [g = c.groups](const Tensors& x, const Tensors&) {
                     return group_norm(x[0], g, {}, {}, 0.5);
                   },
                   {{c.shape}}});
    if (c.shape.dim() == 2) continue;
    all.push_back(
        {"F.instance_norm(x[0], weight=x[1], bias=x[2])",
         [](const Tensors& x, const Tensors&) { return instance_norm(x[0], {}, {}, x[1], x[2]); },
         {{c.shape}, {channels}, {channels}}});
    all.push_back(
        {"F.instance_norm(x[0], torch.full_like(x[1], 0.5).detach(), torch.full_like("
         "x[1], 2), x[1], use_input_stats=False, eps=0.25)",
         [](const Tensors& x, const Tensors&) {
           return instance_norm(x[0], full(x[1].shape(), 0.5, x[0].dtype()),
                                full(x[1].shape(), 2, x[0].dtype()), x[1], {},
                                {.use_input_stats = false, .eps = 0.25});
         },
         {{c.shape}, {channels}}});
    for (const int size : {1, 2, 3}) {
      all.push_back({concat("F.local_response_norm(x[0], ", size, ", alpha=0.5, beta=0.25, k=2)"),
                     [size](const Tensors& x, const Tensors&) {
                       return local_response_norm(x[0], size, {.alpha = 0.5, .beta = 0.25, .k = 2});
                     },
                     {{c.shape}}});
    }
  }
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{5}, {5}}, {{3, 17}, {17}}, {{2, 3, 5}, {3, 5}}};
  for (const auto& [x, norm] : cases) {
    const std::string sizes = "x[0].shape[-" + std::to_string(norm.dim()) + ":]";
    all.push_back(
        {"F.rms_norm(x[0], " + sizes + ", x[1])",
         [norm = norm](const Tensors& t, const Tensors&) { return rms_norm(t[0], norm, t[1]); },
         {{x}, {norm}},
         {},
         true,
         "F.rms_norm"});
    all.push_back(
        {"F.rms_norm(x[0], " + sizes + ", eps=0.25)",
         [norm = norm](const Tensors& t, const Tensors&) { return rms_norm(t[0], norm, {}, 0.25); },
         {{x}},
         {},
         true,
         "F.rms_norm"});
  }
}

void add_padding(std::vector<OpCase>& all) {
  struct Case {
    const char* torch;
    PadMode mode;
    Shape shape;
    std::vector<std::int64_t> pads;
  };
  for (const Case& c : {Case{"constant', value=0.5", PadMode::constant, {3, 4}, {1, 2}},
                        {"constant'", PadMode::constant, {2, 3, 4}, {0, 2, 1, 0, 3, 1}},
                        {"constant', value=-1", PadMode::constant, {2, 3, 4}, {-1, 2, 1, -2}},
                        {"reflect'", PadMode::reflect, {2, 3, 4}, {3, 2}},
                        {"reflect'", PadMode::reflect, {1, 2, 3, 4}, {1, 0, 2, 1}},
                        {"replicate'", PadMode::replicate, {2, 3, 4}, {5, 1}},
                        {"replicate'", PadMode::replicate, {1, 2, 2, 3, 2}, {1, 0, 2, 1, 0, 3}},
                        {"circular'", PadMode::circular, {2, 3, 4}, {4, 2}},
                        {"circular'", PadMode::circular, {1, 2, 3, 4}, {1, 0, 2, 3}}}) {
    std::string pads;
    for (const std::int64_t each : c.pads) pads += concat(each, ", ");
    all.push_back(
        {concat("F.pad(x[0], (", pads, "), '", c.torch, ")"),
         [pads = c.pads, mode = c.mode, torch = std::string(c.torch)](const Tensors& x,
                                                                      const Tensors&) {
           const double value = torch.ends_with("0.5") ? 0.5 : torch.ends_with("-1") ? -1 : 0;
           return pad(x[0], pads, mode, value);
         },
         {{c.shape}}});
  }
}

void add_shuffles(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, auto op, const Shape& shape) {
    all.push_back({std::move(torch) + " * 2",
                   [op](const Tensors& x, const Tensors&) { return op(x[0]) * 2.0; },
                   {{shape}}});
  };
  for (const Shape& shape : {Shape{4, 2, 3}, Shape{2, 8, 3, 2}, Shape{2, 1, 4, 2, 2}}) {
    add(
        "F.pixel_shuffle(x[0], 2)", [](const Tensor& x) { return pixel_shuffle(x, 2); }, shape);
  }
  for (const Shape& shape : {Shape{1, 4, 6}, Shape{2, 3, 2, 4}}) {
    add(
        "F.pixel_unshuffle(x[0], 2)", [](const Tensor& x) { return pixel_unshuffle(x, 2); }, shape);
  }
  add("x[0].reshape(2, 3, 2, 2, 2).transpose(1, 2).reshape(x[0].shape)",
      [](const Tensor& x) { return channel_shuffle(x, 3); }, {2, 6, 2, 2});
}

void add_bags(std::vector<OpCase>& all) {
  const Tensor rows = Tensor::from<std::int64_t>({3, 0, 6, 3, 2, 3}, {2, 3});
  const Tensor list = Tensor::from<std::int64_t>({3, 0, 6, 3, 2, 3}, {6});
  const Tensor offsets = Tensor::from<std::int64_t>({0, 2, 2, 5}, {4});  // the second is empty
  const std::pair<BagMode, const char*> modes[] = {
      {BagMode::sum, "sum"}, {BagMode::mean, "mean"}, {BagMode::max, "max"}};
  for (const auto& [mode, name] : modes) {
    all.push_back({concat("F.embedding_bag(k[0], x[0], mode='", name, "')"),
                   [mode = mode](const Tensors& x, const Tensors& k) {
                     return embedding_bag(k[0], x[0], {}, {.mode = mode});
                   },
                   {{{7, 4}}},
                   {rows}});
    all.push_back({concat("F.embedding_bag(k[0], x[0], k[1], mode='", name, "')"),
                   [mode = mode](const Tensors& x, const Tensors& k) {
                     return embedding_bag(k[0], x[0], k[1], {.mode = mode});
                   },
                   {{{7, 4}}},
                   {list, offsets}});
    all.push_back({concat("F.embedding_bag(k[0], x[0], k[1], mode='", name,
                          "', padding_idx=3, include_last_offset=True)"),
                   [mode = mode](const Tensors& x, const Tensors& k) {
                     return embedding_bag(
                         k[0], x[0], k[1],
                         {.mode = mode, .padding_idx = 3, .include_last_offset = true});
                   },
                   {{{7, 4}}},
                   {list, Tensor::from<std::int64_t>({0, 2, 2, 6}, {4})},
                   false});
  }
  all.push_back({"F.embedding_bag(k[0], x[0], k[1], mode='sum', per_sample_weights=x[1])",
                 [](const Tensors& x, const Tensors& k) {
                   return embedding_bag(k[0], x[0], k[1],
                                        {.mode = BagMode::sum, .per_sample_weights = x[1]});
                 },
                 {{{7, 4}}, {{6}}},
                 {list, offsets}});
}

}  // namespace

std::vector<OpCase> window_cases() {
  std::vector<OpCase> all;
  add_group_norms(all);
  add_padding(all);
  add_shuffles(all);
  add_bags(all);
  return all;
}

}  // namespace peal::test
