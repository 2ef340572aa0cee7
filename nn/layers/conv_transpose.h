// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions of sequences, images and volumes, as PyTorch's. Thread safety: as of
// Module.
#pragma once

#include <peal/autograd/ops/conv_transpose.h>
#include <peal/nn/module.h>

#include <vector>

namespace peal::nn {

// output_padding: elements more on the far sides of the result.
struct ConvTranspose1dSettings {
  std::int64_t stride = 1, padding = 0, output_padding = 0, groups = 1;
  bool bias = true;
  std::int64_t dilation = 1;
};
struct ConvTranspose2dSettings {
  Pair stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  Pair dilation = 1;
};
struct ConvTranspose3dSettings {
  Triple stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  Triple dilation = 1;
};

// weight [in, out / groups, kernel...] and bias [out], both uniform in +-1/sqrt(out / groups * the
// kernel's elements), drawn in this order. x [N, in, ...] or [in, ...] -> [N, out, ...] (sizes:
// autograd/ops/conv_transpose.h); forward_to: to the sizes behind the channels that are asked for,
// by what the result may have more than without output_padding.
class ConvTranspose1d : public Module {
 public:
  ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                  const ConvTranspose1dSettings& settings = {});
  Tensor forward(const Tensor& x) override { return conv_transpose1d(x, weight, bias, options_); }
  Tensor forward_to(const Tensor& x, std::int64_t length);
  std::string extra_repr() const override;

  Tensor weight, bias;  // bias is undefined where there is none

 private:
  ConvTranspose1dOptions options_;
};

class ConvTranspose2d : public Module {
 public:
  //   ConvTranspose2d(64, 32, 4, {.stride = 2, .padding = 1, .bias = false})
  ConvTranspose2d(std::int64_t in, std::int64_t out, Pair kernel,
                  const ConvTranspose2dSettings& settings = {});
  Tensor forward(const Tensor& x) override { return conv_transpose2d(x, weight, bias, options_); }
  Tensor forward_to(const Tensor& x, Pair size);
  std::string extra_repr() const override;

  Tensor weight, bias;

 private:
  ConvTranspose2dOptions options_;
};

class ConvTranspose3d : public Module {
 public:
  ConvTranspose3d(std::int64_t in, std::int64_t out, Triple kernel,
                  const ConvTranspose3dSettings& settings = {});
  Tensor forward(const Tensor& x) override { return conv_transpose3d(x, weight, bias, options_); }
  Tensor forward_to(const Tensor& x, Triple size);
  std::string extra_repr() const override;

  Tensor weight, bias;

 private:
  ConvTranspose3dOptions options_;
};

}  // namespace peal::nn
