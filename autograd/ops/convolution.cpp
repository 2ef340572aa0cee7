// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// What a convolution is called and what its tensors look like, for messages.
struct Form {
  std::string_view op, input, kernel;
  int dim;
};
constexpr Form form1d{"conv1d", "[N, C, L]", "K", 3};
constexpr Form form2d{"conv2d", "[N, C, H, W]", "kH, kW", 4};

// The sizes of the result behind [N, O]. The options' last numbers count where there are fewer.
Shape checked_sizes(const Form& form, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Conv2dOptions& options) {
  const std::string_view op = form.op;
  check_alike(op, x, weight);
  PEAL_CHECK(options.groups >= 1, op, ": expected at least one group, got ", options.groups);
  const bool right_dims = x.dim() == form.dim && weight.dim() == form.dim;
  PEAL_CHECK(options.groups == 1 || (right_dims && x.size(1) == weight.size(1) * options.groups &&
                                     weight.size(0) % options.groups == 0),
             op, ": expected an input ", form.input, " and a weight [O, C / groups, ", form.kernel,
             "] with ", options.groups, " groups that divide C and O, got ", x.shape(), " and ",
             weight.shape());
  PEAL_CHECK(options.groups > 1 || (right_dims && x.size(1) == weight.size(1)), op,
             ": expected an input ", form.input, " and a weight [O, C, ", form.kernel,
             "] of the same C, got ", x.shape(), " and ", weight.shape());
  if (bias.defined()) {
    check_alike(op, x, bias);
    PEAL_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), op, ": expected a bias [",
               weight.size(0), "], got shape ", bias.shape());
  }
  Shape out;
  for (int i = 2; i < form.dim; ++i) {
    const auto d = static_cast<std::size_t>(i + 2 - form.dim);
    const std::int64_t stride = options.stride[d], padding = options.padding[d];
    const std::int64_t dilation = options.dilation[d];
    PEAL_CHECK(dilation >= 1, op, ": expected a dilation of at least 1, got ", dilation);
    PEAL_CHECK(stride >= 1 && padding >= 0, op, ": expected strides >= 1 and padding >= 0, got ",
               stride, " and ", padding);
    const std::int64_t room = x.size(i) + 2 * padding - dilation * (weight.size(i) - 1) - 1;
    PEAL_CHECK(room >= 0 && weight.size(i) > 0, op, ": a kernel of shape ", weight.shape(),
               " does not fit into input ", x.shape(), " with padding ", padding);
    out.push_back(room / stride + 1);
  }
  return out;
}

Conv2dGeometry geometry_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Conv2dOptions& options) {
  const Shape out = checked_sizes(form2d, x, weight, bias, options);
  return {x.size(0),
          x.size(1),
          x.size(2),
          x.size(3),
          weight.size(0),
          out[0],
          out[1],
          weight.size(2),
          weight.size(3),
          options.stride.array(),
          options.padding.array(),
          options.dilation.array(),
          options.groups};
}

// The gradients of a convolution as ops of their own: each is linear in both operands, and its
// gradients are the convolution and the other.
Tensor to_input(const Conv2dGeometry& o, const Tensor& g, const Tensor& weight);
Tensor to_weight(const Conv2dGeometry& o, const Tensor& g, const Tensor& x);

Tensor forward(const Conv2dGeometry& o, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y =
      Tensor::empty({o.batch, o.out_channels, o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).conv2d("conv2d", x, o, y, x, weight, bias);
  return record("conv2d", y, {x, weight, bias},
                [o, x = save(x), weight = save(weight)](const Tensor& g, Needs needs) {
                  Tensors grads(3);
                  if (backward_is_recorded()) {
                    if (needs[0]) grads[0] = to_input(o, g, weight());
                    if (needs[1]) grads[1] = to_weight(o, g, x());
                    if (needs[2]) grads[2] = sum(g, {0, 2, 3});
                    return grads;
                  }
                  const auto like = [&](const Shape& shape) {
                    return Tensor::empty(shape, g.dtype(), g.device());
                  };
                  if (needs[0]) grads[0] = like(x().shape());
                  if (needs[1]) grads[1] = like(weight().shape());
                  if (needs[2]) grads[2] = like({o.out_channels});
                  kernels(g.device())
                      .conv2d_backward("conv2d", g, o, grads[0], grads[1], grads[2], g, x(),
                                       weight());
                  return grads;
                });
}

Tensor to_input(const Conv2dGeometry& o, const Tensor& g, const Tensor& weight) {
  const OpName op("conv2d");
  const Shape shape{o.batch, o.in_channels, o.in_height, o.in_width};
  const Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  // Of the input only shape and type are asked: those of its gradient.
  kernels(g.device()).conv2d_backward("conv2d", g, o, dx, {}, {}, g, dx, weight);
  return record("conv2d", dx, {g, weight},
                [o, g = save(g), weight = save(weight)](const Tensor& gg, Needs needs) {
                  return Tensors{needs[0] ? forward(o, gg, weight(), {}) : Tensor(),
                                 needs[1] ? to_weight(o, g(), gg) : Tensor()};
                });
}

Tensor to_weight(const Conv2dGeometry& o, const Tensor& g, const Tensor& x) {
  const OpName op("conv2d");
  const Shape shape{o.out_channels, o.in_channels / o.groups, o.kernel_height, o.kernel_width};
  const Tensor dweight = Tensor::empty(shape, g.dtype(), g.device());
  kernels(g.device()).conv2d_backward("conv2d", g, o, {}, dweight, {}, g, x, dweight);
  return record("conv2d", dweight, {g, x},
                [o, g = save(g), x = save(x)](const Tensor& gg, Needs needs) {
                  return Tensors{needs[0] ? forward(o, x(), gg, {}) : Tensor(),
                                 needs[1] ? to_input(o, g(), gg) : Tensor()};
                });
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  if (lowers(x, weight, bias)) {
    return conv2d(lowered(x), lowered(weight), lowered(bias), options);
  }
  TraceSpan span("conv2d");
  return forward(geometry_of(x, weight, bias, options), x, weight, bias);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  const OpName op("conv1d");
  if (lowers(x, weight, bias)) {
    return conv1d(lowered(x), lowered(weight), lowered(bias), options);
  }
  const Conv2dOptions flat{.stride = {1, options.stride},
                           .padding = {0, options.padding},
                           .dilation = {1, options.dilation},
                           .groups = options.groups};
  checked_sizes(form1d, x, weight, bias, flat);
  return squeeze(conv2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias, flat), 2);
}

}  // namespace peal
