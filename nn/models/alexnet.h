// SPDX-License-Identifier: Apache-2.0
// AlexNet, as of Krizhevsky, "One weird trick for parallelizing convolutional neural networks"
// (2014), in torchvision's form: its keys (features.0.weight, ..., classifier.6.bias), its
// initialisation (PyTorch's of each layer), its defaults. Images of at least 63 x 63. Thread
// safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

struct AlexNetSettings {
  std::int64_t num_classes = 1000;
  double dropout = 0.5;
  std::int64_t hidden = 4096;  // of the classifier
};

struct AlexNet : Module {
  Sequential features, classifier;

  explicit AlexNet(const AlexNetSettings& settings = {})
      : features(add("features",
                     Sequential(Conv2d(3, 64, 11, {.stride = 4, .padding = 2}), ReLU(),
                                MaxPool2d(3, 2), Conv2d(64, 192, 5, {.padding = 2}), ReLU(),
                                MaxPool2d(3, 2), Conv2d(192, 384, 3, {.padding = 1}), ReLU(),
                                Conv2d(384, 256, 3, {.padding = 1}), ReLU(),
                                Conv2d(256, 256, 3, {.padding = 1}), ReLU(), MaxPool2d(3, 2)))),
        classifier(add("classifier", Sequential(Dropout(settings.dropout),
                                                Linear(std::int64_t{256} * 6 * 6, settings.hidden),
                                                ReLU(), Dropout(settings.dropout),
                                                Linear(settings.hidden, settings.hidden), ReLU(),
                                                Linear(settings.hidden, settings.num_classes)))) {}

  // x [N, 3, H, W] -> logits [N, num_classes].
  Tensor forward(const Tensor& x) override {
    return classifier(flatten(adaptive_avg_pool2d(features(x), 6), 1));
  }
};

}  // namespace peal::nn
