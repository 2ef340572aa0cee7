// SPDX-License-Identifier: Apache-2.0
// BasicNet: the network of PyTorch's MNIST example, 1,199,882 parameters. Thread safety: as of
// Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

struct BasicNet : Module {
  Conv2d conv1 = add("conv1", Conv2d(1, 32, 3));
  Conv2d conv2 = add("conv2", Conv2d(32, 64, 3));
  Dropout dropout1 = add("dropout1", Dropout(0.25));
  Dropout dropout2 = add("dropout2", Dropout(0.5));
  Linear fc1 = add("fc1", Linear(9216, 128));
  Linear fc2 = add("fc2", Linear(128, 10));

  // x [N, 1, 28, 28] -> log-probabilities [N, 10].
  Tensor forward(const Tensor& x) override {
    Tensor y = relu(conv1(x));
    y = relu(conv2(y));
    y = dropout1(max_pool2d(y, 2));
    y = dropout2(relu(fc1(flatten(y, 1))));
    return log_softmax(fc2(y));
  }
};

}  // namespace peal::nn
