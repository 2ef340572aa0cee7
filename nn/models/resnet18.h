// SPDX-License-Identifier: Apache-2.0
// ResNet18 for small images: a 3 x 3 convolution, eight blocks of two, a mean over the image and a
// linear layer (He et al., "Deep residual learning for image recognition", 2015, sections 3.3 and
// 4.2). The children have short names: c, b; l.0 to l.7 with c1, b1, c2, b2, sc; f. Thread safety:
// as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

// relu(b2(c2(relu(b1(c1(x))))) + sc(x)); the shortcut is empty where sizes do not change.
struct ResidualBlock : Module {
  Conv2d c1, c2;
  BatchNorm2d b1, b2;
  Sequential sc;

  ResidualBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
      : c1(add("c1", Conv2d(in, out, 3, {.stride = stride, .padding = 1, .bias = false}))),
        c2(out, out, 3, {.padding = 1, .bias = false}),
        b1(add("b1", BatchNorm2d(out))),
        b2(out) {
    c2 = add("c2", c2);
    b2 = add("b2", b2);
    if (stride != 1 || in != out) {
      sc.push_back(Conv2d(in, out, 1, {.stride = stride, .bias = false}));
      sc.push_back(BatchNorm2d(out));
    }
    sc = add("sc", sc);
  }

  Tensor forward(const Tensor& x) override {
    const Tensor y = relu(b1(c1(x)));
    return relu(b2(c2(y)) + sc(x));
  }
};

struct ResNet18 : Module {
  Conv2d c = add("c", Conv2d(3, 64, 3, {.padding = 1, .bias = false}));
  BatchNorm2d b = add("b", BatchNorm2d(64));
  Sequential l = add("l", blocks());
  Linear f;

  explicit ResNet18(std::int64_t classes = 10) : f(add("f", Linear(512, classes))) {}

  // x [N, 3, H, W] -> logits [N, classes].
  Tensor forward(const Tensor& x) override { return f(mean(l(relu(b(c(x)))), {2, 3})); }

 private:
  static Sequential blocks() {
    Sequential all;
    std::int64_t in = 64;
    for (const std::int64_t out : {64, 128, 256, 512}) {
      all.push_back(ResidualBlock(in, out, out == 64 ? 1 : 2));
      all.push_back(ResidualBlock(out, out, 1));
      in = out;
    }
    return all;
  }
};

}  // namespace peal::nn
