// SPDX-License-Identifier: Apache-2.0
// XResNet: residual networks of 18, 34 and 50 layers with the changes of He et al., "Bag of tricks
// for image classification" (2018), in fastai's form: its keys (0.0.weight, ..., 4.0.convpath.0.0.
// weight, ..., 11.bias), its order, its initialisation. Three 3 x 3 convolutions come first; where
// a block shrinks the image, its shortcut is averaged before its 1 x 1 convolution; the last
// normalisation of a block starts at zero, so that a block starts as its shortcut.
//
//   nn::XResNet18 net({.num_classes = 10, .activation = [] { return nn::Module(nn::Mish()); }});
//
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>

#include <array>
#include <functional>
#include <optional>

namespace peal::nn {

struct XResNetSettings {
  std::int64_t num_classes = 1000;
  double dropout = 0;  // before the last layer
  // Makes what stands between layers; nothing: ReLU.
  std::function<Module()> activation = nullptr;
};

// conv, normalisation and, where it is asked for, an activation: "0", "1", "2".
inline Sequential xresnet_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                               std::int64_t stride, const XResNetSettings& settings,
                               bool activated = true) {
  Sequential all(Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false}),
                 BatchNorm2d(out));
  if (activated) all.push_back(settings.activation ? settings.activation() : Module(ReLU()));
  return all;
}

// Means of 2 x 2 pixels; of an odd side the last ones are of fewer.
struct CeilAvgPool : Module {
  Tensor forward(const Tensor& x) override {
    const std::int64_t down = x.size(2) % 2, across = x.size(3) % 2;
    // The last row or column twice has the same mean.
    return avg_pool2d(down + across == 0 ? x : pad(x, {0, across, 0, down}, PadMode::replicate), 2);
  }
};

struct XResBlock : Module {
  Sequential convpath, idpath;

  // From `in` channels to `out`, of three convolutions where those within are fewer.
  XResBlock(std::int64_t in, std::int64_t within, std::int64_t out, std::int64_t stride,
            const XResNetSettings& settings)
      : convpath(add("convpath", convolutions(in, within, out, stride, settings))),
        idpath(add("idpath", shortcut(in, out, stride, settings))),
        activation_(add("act", settings.activation ? settings.activation() : Module(ReLU()))) {}

  Tensor forward(const Tensor& x) override { return activation_(convpath(x) + idpath(x)); }

 private:
  static Sequential convolutions(std::int64_t in, std::int64_t within, std::int64_t out,
                                 std::int64_t stride, const XResNetSettings& settings) {
    if (within == out) {
      return Sequential(xresnet_conv(in, within, 3, stride, settings),
                        last(xresnet_conv(within, out, 3, 1, settings, false)));
    }
    return Sequential(xresnet_conv(in, within, 1, 1, settings),
                      xresnet_conv(within, within, 3, stride, settings),
                      last(xresnet_conv(within, out, 1, 1, settings, false)));
  }
  static Sequential last(Sequential conv) {
    for (const auto& [name, parameter] : conv.named_parameters()) {
      if (name == "1.weight") init::constant_(parameter, 0);
    }
    return conv;
  }
  static Sequential shortcut(std::int64_t in, std::int64_t out, std::int64_t stride,
                             const XResNetSettings& settings) {
    Sequential all;
    if (stride != 1) all.push_back(CeilAvgPool());
    if (in != out) all.push_back(xresnet_conv(in, out, 1, 1, settings, false));
    return all;
  }

  Module activation_;
};

struct XResNet : Sequential {
  XResNet(const std::array<int, 4>& blocks, std::int64_t expansion,
          const XResNetSettings& settings = {}) {
    push_back(xresnet_conv(3, 32, 3, 2, settings));
    push_back(xresnet_conv(32, 32, 3, 1, settings));
    push_back(xresnet_conv(32, 64, 3, 1, settings));
    push_back(MaxPool2d(3, 2, 1));
    std::int64_t in = 64;
    for (std::size_t number = 0; number < 4; ++number) {
      Sequential layer;
      const std::int64_t within = std::int64_t{64} << number, out = within * expansion;
      for (int i = 0; i < blocks[number]; ++i, in = out) {
        layer.push_back(XResBlock(in, within, out, i == 0 && number > 0 ? 2 : 1, settings));
      }
      push_back(layer);
    }
    push_back(AdaptiveAvgPool2d(1));
    push_back(Flatten());
    push_back(Dropout(settings.dropout));
    push_back(Linear(in, settings.num_classes));
    for (const auto& [name, parameter] : named_parameters()) {
      if (name.ends_with("bias")) init::constant_(parameter, 0);
      if (parameter.dim() > 1) init::kaiming_normal_(parameter);
    }
  }
};

struct XResNet18 : XResNet {
  explicit XResNet18(const XResNetSettings& settings = {}) : XResNet({2, 2, 2, 2}, 1, settings) {}
};

struct XResNet34 : XResNet {
  explicit XResNet34(const XResNetSettings& settings = {}) : XResNet({3, 4, 6, 3}, 1, settings) {}
};

struct XResNet50 : XResNet {
  explicit XResNet50(const XResNetSettings& settings = {}) : XResNet({3, 4, 6, 3}, 4, settings) {}
};

}  // namespace peal::nn
