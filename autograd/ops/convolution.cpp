// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

constexpr ConvForm form1d{"conv1d", "[N, C, L]", "K", 3};
constexpr ConvForm form2d{"conv2d", "[N, C, H, W]", "kH, kW", 4};

// Numbers in the place of "same", which come in front of x; where they are uneven x has one more
// zero behind.
void even_out(const ConvForm& form, Tensor& x, const Tensor& weight, Conv2dOptions& options) {
  if (!options.padding.same() || x.dim() != form.dim || weight.dim() != form.dim) return;
  std::array<std::int64_t, 2> before{};
  std::vector<std::int64_t> behind;  // from the last dimension on
  for (int i = form.dim - 1; i >= 2; --i) {
    const auto d = static_cast<std::size_t>(i + 2 - form.dim);
    const std::int64_t all =
        same_padding(form.op, weight.size(i), options.stride[d], options.dilation[d]);
    before[d] = all / 2;
    behind.insert(behind.end(), {0, all % 2});
  }
  options.padding = Pair(before[0], before[1]);
  x = padded(x, behind);
}

Conv2dGeometry geometry_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Conv2dOptions& options) {
  const Shape out = convolved_sizes(form2d, x, weight, bias, options);
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
Tensor to_weight(const Conv2dGeometry& o, const Tensor& g, const Tensor& x);

Tensor forward(const Conv2dGeometry& o, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const OpName op("conv2d");
  Tensor y =
      Tensor::empty({o.batch, o.out_channels, o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).conv2d("conv2d", x, o, y, x, weight, bias);
  return record(
      "conv2d", y, {x, weight, bias},
      [o, x = save(x), weight = save(weight), of_bias = bias.defined() ? bias.dtype() : x.dtype()](
          const Tensor& g, Needs needs) {
        Tensors grads(3);
        const DType of_weight = weight().dtype();
        if (backward_is_recorded()) {
          const Tensor kernel = cast(weight(), g.dtype());
          if (needs[0]) grads[0] = convolved_back("conv2d", o, g, kernel);
          if (needs[1]) grads[1] = cast(to_weight(o, g, x()), of_weight);
          if (needs[2]) grads[2] = sum(cast(g, of_bias), {0, 2, 3});
          return grads;
        }
        const auto wanted = [&](const Shape& shape, DType dtype) {
          return Tensor::empty(shape, dtype, g.device());
        };
        if (needs[0]) grads[0] = wanted(x().shape(), g.dtype());
        if (needs[1]) grads[1] = wanted(weight().shape(), of_weight);
        if (needs[2]) grads[2] = wanted({o.out_channels}, of_bias);
        kernels(g.device())
            .conv2d_backward("conv2d", g, o, grads[0], grads[1], grads[2], g, x(), weight());
        return grads;
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
                                 needs[1] ? convolved_back("conv2d", o, g(), gg) : Tensor()};
                });
}

// Of operands that autocast is done with.
Tensor convolved(const Tensor& input, const Tensor& weight, const Tensor& bias,
                 const Conv2dOptions& options) {
  if (input.dim() == 3) {
    return with_batch(input, 2,
                      [&](const Tensor& x) { return convolved(x, weight, bias, options); });
  }
  TraceSpan span("conv2d");
  if (!options.padding.same()) {
    return forward(geometry_of(input, weight, bias, options), input, weight, bias);
  }
  Tensor x = input;
  Conv2dOptions numbers = options;
  even_out(form2d, x, weight, numbers);
  return forward(geometry_of(x, weight, bias, numbers), x, weight, bias);
}

}  // namespace

Tensor convolved_back(std::string_view op, const Conv2dGeometry& o, const Tensor& g,
                      const Tensor& weight) {
  const OpName name(op);
  const Shape shape{o.batch, o.in_channels, o.in_height, o.in_width};
  const Tensor dx = Tensor::empty(shape, g.dtype(), g.device());
  // Of the input only shape and type are asked: those of its gradient.
  kernels(g.device()).conv2d_backward(op, g, o, dx, {}, {}, g, dx, weight);
  return record(op, dx, {g, weight},
                [o, g = save(g), weight = save(weight)](const Tensor& gg, Needs needs) {
                  return Tensors{needs[0] ? forward(o, gg, weight(), {}) : Tensor(),
                                 needs[1] ? to_weight(o, g(), gg) : Tensor()};
                });
}

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  const OpName op("conv2d");
  if (lowers(input, weight, bias)) {
    // The CPU rounds a weight while it arranges it, and its gradient is never less than f32. In f16
    // gradients end at its range, on which scaled losses count.
    const bool here = input.device().type == DeviceType::cpu && context().autocast == DType::bf16;
    const auto later = [here](const Tensor& parameter) {
      const bool wide = here && parameter.defined() && parameter.dtype() == DType::f32;
      return wide ? parameter : lowered(parameter);
    };
    return convolved(lowered(input), later(weight), later(bias), options);
  }
  return convolved(input, weight, bias, options);
}

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  const OpName op("conv1d");
  if (lowers(input, weight, bias)) {
    return conv1d(lowered(input), lowered(weight), lowered(bias), options);
  }
  if (input.dim() == 2) {
    return with_batch(input, 1, [&](const Tensor& x) { return conv1d(x, weight, bias, options); });
  }
  Tensor x = input;
  Conv2dOptions flat{.stride = {1, options.stride},
                     .padding = {0, options.padding.length},
                     .dilation = {1, options.dilation},
                     .groups = options.groups};
  flat.padding.word = options.padding.word;
  even_out(form1d, x, weight, flat);
  convolved_sizes(form1d, x, weight, bias, flat);
  return squeeze(conv2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias, flat), 2);
}

}  // namespace peal
