// SPDX-License-Identifier: Apache-2.0
// ResNet-50: residual networks of 50 layers (He et al., "Deep residual learning for image
// recognition", 2015, table 1, blocks of three convolutions), in torchvision's form: its keys and
// their order, its initialisation, its defaults, and the stride in the 3 x 3 convolution of a block
// ("v1.5"). Thread safety: as of Module.
#pragma once

#include <peal/nn/models/resnet18.h>

namespace peal::nn {

// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + downsample(x)), four times as wide at
// its end as within.
struct Bottleneck : Module {
  static constexpr std::int64_t expansion = 4;
  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Conv2d conv3;
  BatchNorm2d bn3;
  std::optional<Sequential> downsample;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1(add("conv1", Conv2d(in, width, 1, {.bias = false}))),
        bn1(add("bn1", BatchNorm2d(width))),
        conv2(
            add("conv2", Conv2d(width, width, 3, {.stride = stride, .padding = 1, .bias = false}))),
        bn2(add("bn2", BatchNorm2d(width))),
        conv3(add("conv3", Conv2d(width, expansion * width, 1, {.bias = false}))),
        bn3(add("bn3", BatchNorm2d(expansion * width))) {
    if (stride == 1 && in == expansion * width) return;
    downsample = add("downsample",
                     Sequential(Conv2d(in, expansion * width, 1, {.stride = stride, .bias = false}),
                                BatchNorm2d(expansion * width)));
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x))))))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

struct ResNet50 : Module {
  Conv2d conv1;
  BatchNorm2d bn1;
  Sequential layer1, layer2, layer3, layer4;
  Linear fc;

  explicit ResNet50(std::int64_t num_classes = 1000)
      : conv1(add("conv1", Conv2d(3, 64, 7, {.stride = 2, .padding = 3, .bias = false}))),
        bn1(add("bn1", BatchNorm2d(64))),
        layer1(add("layer1", layer(64, 64, 3, 1))),
        layer2(add("layer2", layer(256, 128, 4, 2))),
        layer3(add("layer3", layer(512, 256, 6, 2))),
        layer4(add("layer4", layer(1024, 512, 3, 2))),
        fc(add("fc", Linear(2048, num_classes))) {
    for (const auto& [name, parameter] : named_parameters()) {
      if (parameter.dim() != 4) continue;
      init::kaiming_normal_(
          parameter, {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::relu});
    }
  }

  // x [N, 3, H, W] -> logits [N, num_classes].
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(bn1(conv1(x))), 3, {.stride = 2, .padding = 1});
    return fc(mean(layer4(layer3(layer2(layer1(y)))), {2, 3}));
  }

 private:
  static Sequential layer(std::int64_t in, std::int64_t width, int blocks, std::int64_t stride) {
    Sequential all(Bottleneck(in, width, stride));
    for (int i = 1; i < blocks; ++i) {
      all.push_back(Bottleneck(Bottleneck::expansion * width, width, 1));
    }
    return all;
  }
};

}  // namespace peal::nn
