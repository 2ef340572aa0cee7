// SPDX-License-Identifier: Apache-2.0
// A body that was trained on other images, and a head of one's own classes (fastai: create_body,
// create_head, create_vision_model), with fastai's names of parameters: "0" is the body, of which
// "0.0" is the first convolution and "0.4" to "0.7" are the layers, and "1" is the head.
//
//   nn::ResNet18 net;
//   nn::load_model("resnet18.safetensors", net);     // torchvision's weights
//   nn::VisionModel model(nn::resnet_body(net), 512, 37);
//
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/tabular.h>

#include <cstdint>
#include <vector>

namespace peal::nn {

// Of each channel the largest and the mean: [N, C, H, W] -> [N, 2 C, 1, 1].
struct AdaptiveConcatPool2d : Module {
  Tensor forward(const Tensor& x) override {
    return cat({adaptive_max_pool2d(x, 1), adaptive_avg_pool2d(x, 1)}, 1);
  }
};

struct HeadSettings {
  std::vector<std::int64_t> lin_ftrs = {512};  // layers before the last
  double ps = 0.5;          // dropout before the last layer, half of it before others
  bool concat_pool = true;  // else the mean alone
};

// Pooling and linear layers, from [N, channels, H, W] to [N, outputs]; weights by kaiming_normal_.
inline Sequential create_head(std::int64_t channels, std::int64_t outputs,
                              const HeadSettings& settings = {}) {
  Sequential head;
  if (settings.concat_pool) {
    head.push_back(AdaptiveConcatPool2d());
  } else {
    head.push_back(AdaptiveAvgPool2d(1));
  }
  head.push_back(Flatten());
  std::vector<std::int64_t> widths{settings.concat_pool ? 2 * channels : channels};
  widths.insert(widths.end(), settings.lin_ftrs.begin(), settings.lin_ftrs.end());
  widths.push_back(outputs);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    const LinBnDrop layer(widths[i], widths[i + 1],
                          {.p = last ? settings.ps : settings.ps / 2, .act = !last});
    for (const auto& [name, part] : layer.named_children()) head.push_back(part);
  }
  for (const auto& [name, parameter] : head.named_parameters()) {
    if (parameter.dim() == 2) init::kaiming_normal_(parameter);
  }
  return head;
}

// All of a ResNet before its pool, sharing its parameters: [N, 3, H, W] -> [N, channels, h, w].
inline Sequential resnet_body(const ResNet& net) {
  Sequential body(net.conv1, net.bn1, ReLU());
  if (net.conv1.weight.size(2) == 3) {  // of small images
    body.push_back(Identity());
  } else {
    body.push_back(MaxPool2d(3, 2, 1));
  }
  for (const Sequential& layer : {net.layer1, net.layer2, net.layer3, net.layer4}) {
    body.push_back(layer);
  }
  return body;
}

struct VisionModel : Sequential {
  VisionModel(const Sequential& body, std::int64_t channels, std::int64_t outputs,
              const HeadSettings& head = {})
      : Sequential(body, create_head(channels, outputs, head)) {}
};

}  // namespace peal::nn
