// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

Conv2dGeometry geometry_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Conv2dOptions& options) {
  check_alike("conv2d", x, weight);
  PEAL_CHECK(options.groups >= 1, "conv2d: expected at least one group, got ", options.groups);
  PEAL_CHECK(options.groups == 1 || (x.dim() == 4 && weight.dim() == 4 &&
                                     x.size(1) == weight.size(1) * options.groups &&
                                     weight.size(0) % options.groups == 0),
             "conv2d: expected an input [N, C, H, W] and a weight [O, C / groups, kH, kW] with ",
             options.groups, " groups that divide C and O, got ", x.shape(), " and ",
             weight.shape());
  PEAL_CHECK(
      options.groups > 1 || (x.dim() == 4 && weight.dim() == 4 && x.size(1) == weight.size(1)),
      "conv2d: expected an input [N, C, H, W] and a weight [O, C, kH, kW] of the same C, got ",
      x.shape(), " and ", weight.shape());
  if (bias.defined()) {
    check_alike("conv2d", x, bias);
    PEAL_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), "conv2d: expected a bias [",
               weight.size(0), "], got shape ", bias.shape());
  }
  Shape out{x.size(0), weight.size(0)};
  for (int i = 0; i < 2; ++i) {
    const auto d = static_cast<std::size_t>(i);
    const std::int64_t stride = options.stride[d], padding = options.padding[d];
    const std::int64_t dilation = options.dilation[d];
    PEAL_CHECK(dilation >= 1, "conv2d: expected a dilation of at least 1, got ", dilation);
    PEAL_CHECK(stride >= 1 && padding >= 0, "conv2d: expected strides >= 1 and padding >= 0, got ",
               stride, " and ", padding);
    const std::int64_t room = x.size(2 + i) + 2 * padding - dilation * (weight.size(2 + i) - 1) - 1;
    PEAL_CHECK(room >= 0 && weight.size(2 + i) > 0, "conv2d: a kernel of shape ", weight.shape(),
               " does not fit into input ", x.shape(), " with padding ", padding);
    out.push_back(room / stride + 1);
  }
  return {x.size(0),       x.size(1),        x.size(2),      x.size(3),      out[1],
          out[2],          out[3],           weight.size(2), weight.size(3), options.stride,
          options.padding, options.dilation, options.groups};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  if (lowers(x, weight, bias)) {
    return conv2d(lowered(x), lowered(weight), lowered(bias), options);
  }
  TraceSpan span("conv2d");
  const Conv2dGeometry o = geometry_of(x, weight, bias, options);
  Tensor y =
      Tensor::empty({o.batch, o.out_channels, o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).conv2d("conv2d", x, o, y, x, weight, bias);
  return record("conv2d", y, {x, weight, bias},
                [o, x = save(x), weight = save(weight)](const Tensor& g, Needs needs) {
                  const auto like = [&](const Shape& shape) {
                    return Tensor::empty(shape, g.dtype(), g.device());
                  };
                  Tensors grads(3);
                  if (needs[0]) grads[0] = like(x().shape());
                  if (needs[1]) grads[1] = like(weight().shape());
                  if (needs[2]) grads[2] = like({o.out_channels});
                  kernels(g.device())
                      .conv2d_backward("conv2d", g, o, grads[0], grads[1], grads[2], g, x(),
                                       weight());
                  return grads;
                });
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  PEAL_CHECK(x.dim() == 3 && weight.dim() == 3,
             "conv1d: expected an input [N, C, L] and a weight [O, C / groups, K], got ", x.shape(),
             " and ", weight.shape());
  const Tensor y = conv2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias,
                          {.stride = {1, options.stride},
                           .padding = {0, options.padding},
                           .dilation = {1, options.dilation},
                           .groups = options.groups});
  return squeeze(y, 2);
}

}  // namespace peal
