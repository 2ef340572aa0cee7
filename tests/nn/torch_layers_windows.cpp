// SPDX-License-Identifier: Apache-2.0
// Convolutions of all kinds, pools, interpolation, and windows as columns.
#include <peal/nn/layers/layers.h>

#include "torch_layer_writer.h"

namespace peal::test {
namespace {

void write_convolutions(LayerWriter& write) {
  write(
      "nn.Conv1d(3, 4, 4, padding='same', padding_mode='reflect')",
      [] { return nn::Conv1d(3, 4, 4, {.padding = "same", .padding_mode = PadMode::reflect}); },
      randn({2, 3, 6}));
  write(
      "nn.Conv1d(3, 4, 3, 2, 2, padding_mode='circular')",
      [] {
        return nn::Conv1d(3, 4, 3, {.stride = 2, .padding = 2, .padding_mode = PadMode::circular});
      },
      randn({2, 3, 7}));
  write(
      "nn.Conv2d(2, 4, (3, 2), padding='same', dilation=(1, 2))",
      [] {
        return nn::Conv2d(2, 4, {3, 2}, {.padding = "same", .dilation = {1, 2}});
      },
      randn({2, 2, 4, 5}));
  write(
      "nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode='replicate')",
      [] {
        return nn::Conv2d(2, 4, 3, {.padding = {1, 2}, .padding_mode = PadMode::replicate});
      },
      randn({2, 4, 5}));
  write(
      "nn.Conv3d(2, 4, (1, 2, 3), (1, 2, 1), (0, 1, 1), 1, 2, False)",
      [] {
        return nn::Conv3d(2, 4, {1, 2, 3},
                          {.stride = {1, 2, 1}, .padding = {0, 1, 1}, .groups = 2, .bias = false});
      },
      randn({2, 2, 3, 4, 3}));
  write(
      "nn.Conv3d(2, 3, 2, padding='same', padding_mode='circular')",
      [] { return nn::Conv3d(2, 3, 2, {.padding = "same", .padding_mode = PadMode::circular}); },
      randn({1, 2, 3, 4, 3}));
}

void write_transposed(LayerWriter& write) {
  write(
      "nn.ConvTranspose1d(3, 4, 3, 2, 1, 1)",
      [] { return nn::ConvTranspose1d(3, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1}); },
      randn({2, 3, 5}));
  write(
      "nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 0), 2, False, (1, 2))",
      [] {
        return nn::ConvTranspose2d(4, 6, {3, 2}, {{2, 1}, {1, 0}, {1, 0}, 2, false, {1, 2}});
      },
      randn({2, 4, 3, 4}));
  write(
      "nn.ConvTranspose2d(3, 2, 4, 2, 1)",
      [] { return nn::ConvTranspose2d(3, 2, 4, {.stride = 2, .padding = 1}); }, randn({3, 4, 3}));
  write(
      "nn.ConvTranspose3d(2, 3, 2, 2)", [] { return nn::ConvTranspose3d(2, 3, 2, {.stride = 2}); },
      randn({1, 2, 2, 3, 2}));
  write(
      "nn.ConvTranspose1d(3, 4, 3, 2)", [] { return nn::ConvTranspose1d(3, 4, 3, {.stride = 2}); },
      {randn({2, 3, 5})}, "m(x[0], [12])",
      [](auto& layer, const Tensors& x) { return Tensors{layer.forward_to(x[0], 12)}; });
  write(
      "nn.ConvTranspose2d(3, 4, 3, 2)", [] { return nn::ConvTranspose2d(3, 4, 3, {.stride = 2}); },
      {randn({2, 3, 3, 2})}, "m(x[0], [7, 6])",
      [](auto& layer, const Tensors& x) {
        return Tensors{layer.forward_to(x[0], {7, 6})};
      });
  write(
      "nn.ConvTranspose3d(2, 3, 2, 2, 1)",
      [] { return nn::ConvTranspose3d(2, 3, 2, {.stride = 2, .padding = 1}); },
      {randn({1, 2, 2, 3, 2})}, "m(x[0], [2, 5, 3])",
      [](auto& layer, const Tensors& x) {
        return Tensors{layer.forward_to(x[0], {2, 5, 3})};
      });
}

void write_pools(LayerWriter& write) {
  const Tensor line = randn({2, 3, 7}), room = randn({1, 2, 4, 5, 3});
  write(
      "nn.MaxPool1d(3, 2, 1)", [] { return nn::MaxPool1d(3, 2, 1); }, line);
  write(
      "nn.MaxPool3d((2, 3, 1), 2, ceil_mode=True)",
      [] {
        return nn::MaxPool3d({2, 3, 1}, 2, 0, 1, true);
      },
      room);
  write(
      "nn.AvgPool1d(2, None, 0, True)", [] { return nn::AvgPool1d(2, {}, 0, true); }, line);
  write(
      "nn.AvgPool2d(3, 2, 1, True, False)", [] { return nn::AvgPool2d(3, 2, 1, true, false); },
      randn({2, 3, 6, 8}));
  write(
      "nn.AvgPool3d(2, 1, 1, False, False)", [] { return nn::AvgPool3d(2, 1, 1, false, false); },
      room);
  write(
      "nn.AdaptiveAvgPool1d(3)", [] { return nn::AdaptiveAvgPool1d(3); }, line);
  write(
      "nn.AdaptiveAvgPool3d((2, 3, 1))",
      [] {
        return nn::AdaptiveAvgPool3d({2, 3, 1});
      },
      room);
  write(
      "nn.AdaptiveMaxPool1d(2)", [] { return nn::AdaptiveMaxPool1d(2); }, line);
  write(
      "nn.AdaptiveMaxPool2d((2, 3))",
      [] {
        return nn::AdaptiveMaxPool2d({2, 3});
      },
      randn({2, 3, 5, 4}));
  write(
      "nn.AdaptiveMaxPool3d(2)", [] { return nn::AdaptiveMaxPool3d(2); }, room);
  const Extreme found = max_pool2d_with_indices(randn({2, 3, 4, 6}), 2);
  write(
      "nn.MaxUnpool2d(2)", [] { return nn::MaxUnpool2d(2); }, {found.values, found.indices},
      "m(x[0], x[1])", [](auto& layer, const Tensors& x) { return Tensors{layer(x[0], x[1])}; });
  const Extreme in_line = max_pool1d_with_indices(line, 3, {.stride = 2});
  write(
      "nn.MaxUnpool1d(3, 2)", [] { return nn::MaxUnpool1d(3, 2); },
      {in_line.values, in_line.indices}, "m(x[0], x[1], output_size=[8])",
      [](auto& layer, const Tensors& x) { return Tensors{layer.unpool_to(x[0], x[1], 8)}; });
  const Extreme in_room = max_pool3d_with_indices(room, {2, 3, 1}, {.padding = {1, 0, 0}});
  write(
      "nn.MaxUnpool3d((2, 3, 1), padding=(1, 0, 0))",
      [] {
        return nn::MaxUnpool3d({2, 3, 1}, {}, {1, 0, 0});
      },
      {in_room.values, in_room.indices}, "m(x[0], x[1], output_size=[4, 5, 3])",
      [](auto& layer, const Tensors& x) {
        return Tensors{layer.unpool_to(x[0], x[1], {4, 5, 3})};
      });
  const Extreme whole = max_pool3d_with_indices(room, {2, 1, 3});
  write(
      "nn.MaxUnpool3d((2, 1, 3))", [] { return nn::MaxUnpool3d(Triple(2, 1, 3)); },
      {whole.values, whole.indices}, "m(x[0], x[1])",
      [](auto& layer, const Tensors& x) { return Tensors{layer(x[0], x[1])}; });
  write(
      "nn.LPPool1d(3, 3, 2)", [] { return nn::LPPool1d(3, 3, 2); }, abs(line) + 1);
  write(
      "nn.LPPool2d(1.5, (2, 3), (1, 2), True)",
      [] {
        return nn::LPPool2d(1.5, {2, 3}, {1, 2}, true);
      },
      rand({2, 3, 5, 6}) + 1);
  write(
      "nn.LPPool3d(2, 2, 1)", [] { return nn::LPPool3d(2, 2, 1); }, abs(room));
  write(
      "nn.Upsample(scale_factor=2)", [] { return nn::Upsample({.scale_factor = 2}); }, line);
  write(
      "nn.Upsample((5, 4), mode='bilinear', align_corners=True)",
      [] {
        return nn::Upsample(
            {.size = {5, 4}, .mode = InterpolateMode::bilinear, .align_corners = true});
      },
      randn({2, 3, 3, 2}));
}

void write_columns(LayerWriter& write) {
  write(
      "nn.Unfold((2, 3), padding=(0, 1), stride=2)",
      [] {
        return nn::Unfold({2, 3}, {.padding = {0, 1}, .stride = 2});
      },
      randn({2, 2, 4, 5}));
  write(
      "nn.Fold((3, 4), 2)",
      [] {
        return nn::Fold({3, 4}, 2);
      },
      randn({2, 8, 6}));
}

}  // namespace

void write_window_layers(LayerWriter& write) {
  write_convolutions(write);
  write_transposed(write);
  write_pools(write);
  write_columns(write);
}

}  // namespace peal::test
