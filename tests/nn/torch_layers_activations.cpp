// SPDX-License-Identifier: Apache-2.0
// Activations as modules.
#include <peal/nn/layers/layers.h>

#include "torch_layer_writer.h"

namespace peal::test {

void write_activations(LayerWriter& write) {
  const Tensor x = randn({3, 4, 6}) * 2.0, image = randn({2, 3, 2, 4});
#define ROW(torch, ...) \
  write(                \
      torch, [] { return __VA_ARGS__; }, x);
  ROW("nn.ReLU6()", nn::ReLU6())
  ROW("nn.LeakyReLU()", nn::LeakyReLU())
  ROW("nn.LeakyReLU(0.2)", nn::LeakyReLU(0.2))
  ROW("nn.PReLU()", nn::PReLU())
  ROW("nn.PReLU(4, 0.5)", nn::PReLU(4, 0.5))
  ROW("nn.RReLU(0.25, 0.25)", nn::RReLU(0.25, 0.25))
  ROW("nn.ELU(0.5)", nn::ELU(0.5))
  ROW("nn.SELU()", nn::SELU())
  ROW("nn.CELU(2.0)", nn::CELU(2))
  ROW("nn.Hardtanh()", nn::Hardtanh())
  ROW("nn.Hardtanh(-0.5, 2)", nn::Hardtanh(-0.5, 2))
  ROW("nn.Hardswish()", nn::Hardswish())
  ROW("nn.Hardshrink(0.25)", nn::Hardshrink(0.25))
  ROW("nn.Softshrink()", nn::Softshrink())
  ROW("nn.Threshold(0.1, 20)", nn::Threshold(0.1, 20))
  ROW("nn.SiLU()", nn::SiLU())
  ROW("nn.Mish()", nn::Mish())
  ROW("nn.LogSigmoid()", nn::LogSigmoid())
  ROW("nn.Softsign()", nn::Softsign())
  ROW("nn.Tanhshrink()", nn::Tanhshrink())
  ROW("nn.Softplus()", nn::Softplus())
  ROW("nn.Softplus(2, 1)", nn::Softplus(2, 1))
  ROW("nn.GLU()", nn::GLU())
  ROW("nn.GLU(1)", nn::GLU(1))
  ROW("nn.Softmin(1)", nn::Softmin(1))
#undef ROW
  // PyTorch's own has a slope of 1 / 6 in f32.
  write(
      "nn.ReLU6()", [] { return nn::Hardsigmoid(); }, {x}, "m(x[0] + 3) / 6",
      [](auto& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
  write(
      "nn.Softmax2d()", [] { return nn::Softmax2d(); }, image);
}

}  // namespace peal::test
