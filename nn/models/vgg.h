// SPDX-License-Identifier: Apache-2.0
// VGG-11 (Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
// recognition", 2014, table 1, column A), in torchvision's form: its keys (features.0.weight, ...,
// classifier.6.bias), its initialisation, its defaults; with normalisation vgg11_bn. Images of any
// size of at least 32 x 32. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

struct VggSettings {
  std::int64_t num_classes = 1000;
  double dropout = 0.5;
  bool batch_norm = false;
  std::int64_t hidden = 4096;  // of the classifier
};

struct VGG11 : Module {
  Sequential features, classifier;

  explicit VGG11(const VggSettings& settings = {})
      : features(add("features", convolutions(settings.batch_norm))),
        classifier(add(
            "classifier",
            Sequential(Linear(std::int64_t{512} * 7 * 7, settings.hidden), ReLU(),
                       Dropout(settings.dropout), Linear(settings.hidden, settings.hidden), ReLU(),
                       Dropout(settings.dropout), Linear(settings.hidden, settings.num_classes)))) {
    for (const auto& [name, parameter] : named_parameters()) {
      if (name.ends_with("bias")) init::constant_(parameter, 0);
      if (parameter.dim() == 2) init::normal_(parameter, 0, 0.01);
      if (parameter.dim() != 4) continue;
      init::kaiming_normal_(
          parameter, {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::relu});
    }
  }

  // x [N, 3, H, W] -> logits [N, num_classes].
  Tensor forward(const Tensor& x) override {
    return classifier(flatten(adaptive_avg_pool2d(features(x), 7), 1));
  }

 private:
  static Sequential convolutions(bool batch_norm) {
    constexpr std::int64_t pool = 0;
    Sequential all;
    std::int64_t in = 3;
    for (const std::int64_t out :
         {std::int64_t{64}, pool, std::int64_t{128}, pool, std::int64_t{256}, std::int64_t{256},
          pool, std::int64_t{512}, std::int64_t{512}, pool, std::int64_t{512}, std::int64_t{512},
          pool}) {
      if (out == pool) {
        all.push_back(MaxPool2d(2));
        continue;
      }
      all.push_back(Conv2d(in, out, 3, {.padding = 1}));
      if (batch_norm) all.push_back(BatchNorm2d(out));
      all.push_back(ReLU());
      in = out;
    }
    return all;
  }
};

}  // namespace peal::nn
