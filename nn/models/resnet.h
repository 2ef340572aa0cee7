// SPDX-License-Identifier: Apache-2.0
// Residual networks (He et al., "Deep residual learning for image recognition", 2015, table 1) of
// 18, 34 and 50 layers, in torchvision's form: its keys and their order (conv1, bn1,
// layer1.0.conv1, ..., layer4.1.bn2, fc), its initialisation, its defaults, and the stride in the
// 3 x 3 convolution of a block of three ("v1.5"). So its weights load:
//
//   nn::ResNet18 net;                                    // ImageNet's 1000 classes
//   nn::load_model("resnet18.safetensors", net);         // {k: v} of torchvision's state_dict()
//   nn::ResNet18 small({.num_classes = 10, .small_images = true});  // CIFAR-10
//
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>

#include <array>
#include <optional>

namespace peal::nn {

// relu(bn2(conv2(relu(bn1(conv1(x))))) + downsample(x)); there is no downsample where the shapes
// agree.
struct BasicBlock : Module {
  static constexpr std::int64_t expansion = 1;
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  std::optional<Sequential> downsample;

  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(add("conv1", Conv2d(in, out, 3, {.stride = stride, .padding = 1, .bias = false}))),
        bn1(add("bn1", BatchNorm2d(out))),
        conv2(add("conv2", Conv2d(out, out, 3, {.padding = 1, .bias = false}))),
        bn2(add("bn2", BatchNorm2d(out))) {
    if (stride == 1 && in == out) return;
    downsample = add("downsample", Sequential(Conv2d(in, out, 1, {.stride = stride, .bias = false}),
                                              BatchNorm2d(out)));
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + downsample(x)): from `in` channels to
// `within` and to `out`.
struct Bottleneck : Module {
  static constexpr std::int64_t expansion = 4;
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Conv2d conv3;
  BatchNorm2d bn3;
  std::optional<Sequential> downsample;

  Bottleneck(std::int64_t in, std::int64_t within, std::int64_t out, std::int64_t stride)
      : conv1(add("conv1", Conv2d(in, within, 1, {.bias = false}))),
        bn1(add("bn1", BatchNorm2d(within))),
        conv2(add("conv2",
                  Conv2d(within, within, 3, {.stride = stride, .padding = 1, .bias = false}))),
        bn2(add("bn2", BatchNorm2d(within))),
        conv3(add("conv3", Conv2d(within, out, 1, {.bias = false}))),
        bn3(add("bn3", BatchNorm2d(out))) {
    if (stride == 1 && in == out) return;
    downsample = add("downsample", Sequential(Conv2d(in, out, 1, {.stride = stride, .bias = false}),
                                              BatchNorm2d(out)));
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x))))))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

struct ResNetSettings {
  std::int64_t num_classes = 1000;
  // The first convolution is 3 x 3 of stride 1 and no pool follows (section 4.2 of the paper, for
  // images of 32 x 32), not 7 x 7 of stride 2 and a pool of stride 2.
  bool small_images = false;
};

// How many blocks each layer has, and whether they are of three convolutions.
struct ResNetPlan {
  std::array<int, 4> blocks{};
  bool bottlenecks = false;
};

struct ResNet : Module {
  Conv2d conv1;
  BatchNorm2d bn1;
  Sequential layer1, layer2, layer3, layer4;
  Linear fc;

  explicit ResNet(const ResNetPlan& plan, const ResNetSettings& settings = {})
      : conv1(add("conv1", first(settings.small_images))),
        bn1(add("bn1", BatchNorm2d(64))),
        layer1(add("layer1", layer(plan, 0))),
        layer2(add("layer2", layer(plan, 1))),
        layer3(add("layer3", layer(plan, 2))),
        layer4(add("layer4", layer(plan, 3))),
        fc(add("fc", Linear(channels(plan, 3), settings.num_classes))),
        small_images_(settings.small_images) {
    for (const auto& [name, parameter] : named_parameters()) {
      if (parameter.dim() != 4) continue;
      init::kaiming_normal_(
          parameter, {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::relu});
    }
  }

  // x [N, 3, H, W] -> logits [N, num_classes].
  Tensor forward(const Tensor& x) override {
    Tensor y = relu(bn1(conv1(x)));
    if (!small_images_) y = max_pool2d(y, 3, {.stride = 2, .padding = 1});
    return fc(mean(layer4(layer3(layer2(layer1(y)))), {2, 3}));
  }

 private:
  static Conv2d first(bool small_images) {
    if (small_images) return {3, 64, 3, {.padding = 1, .bias = false}};
    return {3, 64, 7, {.stride = 2, .padding = 3, .bias = false}};
  }
  // That come out of a layer.
  static std::int64_t channels(const ResNetPlan& plan, std::size_t number) {
    return (std::int64_t{64} << number) *
           (plan.bottlenecks ? Bottleneck::expansion : BasicBlock::expansion);
  }
  static Sequential layer(const ResNetPlan& plan, std::size_t number) {
    Sequential all;
    std::int64_t in = number == 0 ? 64 : channels(plan, number - 1);
    const std::int64_t out = channels(plan, number);
    for (int i = 0; i < plan.blocks[number]; ++i, in = out) {
      const std::int64_t stride = i == 0 && number > 0 ? 2 : 1;
      if (plan.bottlenecks) {
        all.push_back(Bottleneck(in, std::int64_t{64} << number, out, stride));
      } else {
        all.push_back(BasicBlock(in, out, stride));
      }
    }
    return all;
  }

  bool small_images_;
};

struct ResNet18 : ResNet {
  explicit ResNet18(const ResNetSettings& settings = {}) : ResNet({{2, 2, 2, 2}}, settings) {}
};

struct ResNet34 : ResNet {
  explicit ResNet34(const ResNetSettings& settings = {}) : ResNet({{3, 4, 6, 3}}, settings) {}
};

struct ResNet50 : ResNet {
  explicit ResNet50(const ResNetSettings& settings = {}) : ResNet({{3, 4, 6, 3}, true}, settings) {}
};

}  // namespace peal::nn
