// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/convolution.h>
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
  TraceSpan span("conv2d");
  const Conv2dGeometry o = geometry_of(x, weight, bias, options);
  Tensor y =
      Tensor::empty({o.batch, o.out_channels, o.out_height, o.out_width}, x.dtype(), x.device());
  Tensor kept;
  kernels(x.device()).conv2d("conv2d", x, o, y, x, weight, bias, &kept);
  return record("conv2d", y, {x, weight, bias},
                [o, x = save(x), weight = save(weight), kept](const Tensor& g, Needs needs) {
                  const auto like = [&](const Shape& shape) {
                    return Tensor::empty(shape, g.dtype(), g.device());
                  };
                  Tensors grads(3);
                  if (needs[0]) grads[0] = like(x().shape());
                  if (needs[1]) grads[1] = like(weight().shape());
                  if (needs[2]) grads[2] = like({o.out_channels});
                  kernels(g.device())
                      .conv2d_backward("conv2d", g, o, grads[0], grads[1], grads[2], g, x(),
                                       weight(), kept);
                  return grads;
                });
}

Tensor max_pool2d(const Tensor& x, std::array<std::int64_t, 2> kernel,
                  std::array<std::int64_t, 2> stride) {
  TraceSpan span("max_pool2d");
  check_floating("max_pool2d", x);
  PEAL_CHECK(x.dim() == 4, "max_pool2d: expected [N, C, H, W], got shape ", x.shape());
  Shape out{x.size(0), x.size(1)};
  for (std::size_t d = 0; d < 2; ++d) {
    if (stride[d] == 0) stride[d] = kernel[d];
    const std::int64_t size = x.size(2 + static_cast<int>(d));
    PEAL_CHECK(kernel[d] >= 1 && stride[d] >= 1 && kernel[d] <= size, "max_pool2d: a window of ",
               kernel[0], " x ", kernel[1], " with stride ", stride[d], " does not fit into shape ",
               x.shape());
    out.push_back((size - kernel[d]) / stride[d] + 1);
  }
  PEAL_CHECK(kernel[0] * kernel[1] <= 256, "max_pool2d: a window of at most 256 elements, got ",
             kernel[0], " x ", kernel[1]);
  const Pool2dGeometry o{
      x.size(0) * x.size(1), x.size(2), x.size(3), out[2], out[3], kernel, stride};
  Tensor y = Tensor::empty(out, x.dtype(), x.device());
  const Tensor index = Tensor::empty(out, DType::u8, x.device());
  kernels(x.device()).max_pool2d("max_pool2d", x, o, y, x, index);
  return record("max_pool2d", y, {x}, [o, index, shape = x.shape()](const Tensor& g) {
    Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
    kernels(g.device()).max_pool2d_backward("max_pool2d", g, o, dx, g, index);
    return dx;
  });
}

}  // namespace peal
