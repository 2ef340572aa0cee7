// SPDX-License-Identifier: Apache-2.0
#include "torch_layers.h"

#include <peal/nn/layers/layers.h>

#include "torch_layer_writer.h"

using namespace peal;

namespace {

using Writer = test::LayerWriter;

void write_products(Writer& write) {
  write(
      "nn.Linear(5, 7)", [] { return nn::Linear(5, 7); }, randn({3, 5}));
  write(
      "nn.Linear(5, 7, bias=False)", [] { return nn::Linear(5, 7, false); }, randn({2, 3, 5}));
  write(
      "nn.Conv1d(3, 5, 3)", [] { return nn::Conv1d(3, 5, 3); }, randn({2, 3, 11}));
  write(
      "nn.Conv1d(4, 6, 3, 2, 3, 2, 2, False)",
      [] {
        return nn::Conv1d(4, 6, 3,
                          {.stride = 2, .padding = 3, .dilation = 2, .groups = 2, .bias = false});
      },
      randn({3, 4, 17}));
  write(
      "nn.Conv2d(3, 5, 3)", [] { return nn::Conv2d(3, 5, 3); }, randn({2, 3, 7, 6}));
  write(
      "nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, False)",
      [] {
        return nn::Conv2d(
            4, 6, {3, 2},
            {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2, .bias = false});
      },
      randn({2, 4, 9, 8}));
  const Tensor ids = Tensor::from<std::int64_t>({3, 0, 6, 3, 2, 3}, {2, 3});
  write(
      "nn.Embedding(7, 4)", [] { return nn::Embedding(7, 4); }, ids);
  write(
      "nn.Embedding(7, 4, padding_idx=3)", [] { return nn::Embedding(7, 4, {.padding_idx = 3}); },
      ids);
  write(
      "nn.Embedding(7, 4, padding_idx=-1)", [] { return nn::Embedding(7, 4, {.padding_idx = -1}); },
      ids);
  for (const bool bias : {false, true}) {
    write(
        concat("nn.MultiheadAttention(6, 2, batch_first=True, bias=", bias ? "True" : "False", ")"),
        [=] { return nn::MultiheadAttention(6, 2, {.bias = bias, .batch_first = true}); },
        {randn({2, 4, 6}), randn({2, 5, 6}), randn({2, 5, 6})}, "m(x[0], x[1], x[2])[0]",
        [](auto& layer, const Tensors& x) { return Tensors{layer.attend(x[0], x[1], x[2])}; });
  }
}

void write_norms(Writer& write) {
  write(
      "nn.BatchNorm1d(3)", [] { return nn::BatchNorm1d(3); }, randn({7, 3}));
  write(
      "nn.BatchNorm1d(3)", [] { return nn::BatchNorm1d(3); }, randn({4, 3, 5}));
  write(
      "nn.BatchNorm2d(3)", [] { return nn::BatchNorm2d(3); }, randn({2, 3, 5, 4}));
  write(
      "nn.BatchNorm3d(3)", [] { return nn::BatchNorm3d(3); }, randn({2, 3, 2, 3, 4}));
  write(
      "nn.BatchNorm3d(2, momentum=None)",
      [] { return nn::BatchNorm3d(2, {.momentum = std::nullopt}); }, randn({2, 2, 2, 3, 4}));
  write(
      "nn.BatchNorm1d(3, 0.01, None, False)",
      [] {
        return nn::BatchNorm1d(3, {0.01, std::nullopt, false});
      },
      randn({7, 3}));
  write(
      "nn.BatchNorm2d(3, 0.1, 0.25, True, False)",
      [] {
        return nn::BatchNorm2d(3, {0.1, 0.25, true, false});
      },
      randn({3, 3, 4, 4}));
  write(
      "nn.BatchNorm2d(3, bias=False)", [] { return nn::BatchNorm2d(3, {.bias = false}); },
      randn({2, 3, 5, 4}));
  write(
      "nn.LayerNorm(5)", [] { return nn::LayerNorm(5); }, randn({3, 4, 5}));
  write(
      "nn.LayerNorm((4, 5), 0.1)",
      [] {
        return nn::LayerNorm(Shape{4, 5}, {.eps = 0.1});
      },
      randn({3, 4, 5}));
  write(
      "nn.LayerNorm(5, bias=False)", [] { return nn::LayerNorm(5, {.bias = false}); },
      randn({3, 4, 5}));
  write(
      "nn.LayerNorm(5, elementwise_affine=False)",
      [] { return nn::LayerNorm(5, {.affine = false}); }, randn({3, 5}));
}

void write_windows(Writer& write) {
  const Tensor x = randn({2, 3, 9, 8});
  write(
      "nn.MaxPool2d(2)", [] { return nn::MaxPool2d(2); }, x);
  write(
      "nn.MaxPool2d(3, 2, 1)", [] { return nn::MaxPool2d(3, 2, 1); }, x);
  write(
      "nn.MaxPool2d((3, 2), (2, 3), (1, 0), (2, 1), ceil_mode=True)",
      [] {
        return nn::MaxPool2d({3, 2}, {2, 3}, {1, 0}, {2, 1}, true);
      },
      x);
  write(
      "nn.AvgPool2d(2)", [] { return nn::AvgPool2d(2); }, x);
  write(
      "nn.AvgPool2d((3, 2), 2, 1, False, False)",
      [] {
        return nn::AvgPool2d({3, 2}, 2, 1, false, false);
      },
      x);
  write(
      "nn.AdaptiveAvgPool2d((4, 3))",
      [] {
        return nn::AdaptiveAvgPool2d({4, 3});
      },
      x);
}

void write_functions(Writer& write) {
  const Tensor x = randn({3, 4, 5});
  write(
      "nn.ReLU()", [] { return nn::ReLU(); }, x);
  write(
      "nn.GELU()", [] { return nn::GELU(); }, x);
  write(
      "nn.GELU('tanh')", [] { return nn::GELU(GeluApproximation::tanh); }, x);
  write(
      "nn.Tanh()", [] { return nn::Tanh(); }, x);
  write(
      "nn.Sigmoid()", [] { return nn::Sigmoid(); }, x);
  write(
      "nn.Softmax(1)", [] { return nn::Softmax(1); }, x);
  write(
      "nn.LogSoftmax(-1)", [] { return nn::LogSoftmax(); }, x);
  write(
      "nn.LogSoftmax(0)", [] { return nn::LogSoftmax(0); }, x);
  write(
      "nn.Flatten()", [] { return nn::Flatten(); }, x);
  write(
      "nn.Flatten(0, 1)", [] { return nn::Flatten(0, 1); }, x);
  write(
      "nn.Dropout(0)", [] { return nn::Dropout(0); }, x);
  write(
      "nn.Dropout1d(0)", [] { return nn::Dropout1d(0); }, x);
  write(
      "nn.AlphaDropout(0)", [] { return nn::AlphaDropout(0); }, x);
  write(
      "nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 2))",
      [] {
        return nn::Sequential{nn::Linear(5, 3), nn::Tanh(), nn::Linear(3, 2)};
      },
      x);
}

}  // namespace

namespace peal::test {

void write_layers(const std::filesystem::path& path) {
  manual_seed(1);
  Writer write;
  write_products(write);
  write_norms(write);
  write_windows(write);
  write_functions(write);
  write_recurrent_layers(write);
  write_small_layers(write);
  write_activations(write);
  write_transformers(write);
  write_window_layers(write);
  write.save(path);
}

}  // namespace peal::test
