// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/conv3d.h>
#include <peal/autograd/ops/conv_transpose.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>

namespace peal {
namespace {

constexpr ConvForm transpose1d{"conv_transpose1d", "[N, C, L]", "K", 3};
constexpr ConvForm transpose2d{"conv_transpose2d", "[N, C, H, W]", "kH, kW", 4};
constexpr ConvForm transpose3d{"conv_transpose3d", "[N, C, D, H, W]", "kD, kH, kW", 5};

// The sizes of the result behind [N, O]. The options' last numbers count where there are fewer.
template <class Options>
Shape transposed_sizes(const ConvForm& form, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, const Options& o) {
  constexpr int numbers = std::same_as<decltype(o.stride), Triple> ? 3 : 2;
  const std::string_view op = form.op;
  check_alike(op, x, weight);
  PEAL_CHECK(o.groups >= 1 && x.dim() == form.dim && weight.dim() == form.dim &&
                 x.size(1) == weight.size(0) && x.size(1) % o.groups == 0,
             op, ": expected an input ", form.input, " and a weight [C, O / groups, ", form.kernel,
             "] of the same C, which ", o.groups, " groups divide, got ", x.shape(), " and ",
             weight.shape());
  check_conv_types(op, x, weight, bias, weight.size(1) * o.groups);
  Shape out;
  for (int i = 2; i < form.dim; ++i) {
    const auto d = static_cast<std::size_t>(i - form.dim + numbers);
    const std::int64_t stride = o.stride[d], dilation = o.dilation[d];
    PEAL_CHECK(stride >= 1 && dilation >= 1 && o.padding[d] >= 0, op,
               ": expected strides and dilations >= 1 and padding >= 0, got ", stride, ", ",
               dilation, " and ", o.padding[d]);
    PEAL_CHECK(o.output_padding[d] >= 0 && o.output_padding[d] < std::max(stride, dilation), op,
               ": expected an output_padding below the larger of stride ", stride, " and dilation ",
               dilation, ", got ", o.output_padding[d]);
    const std::int64_t size = (x.size(i) - 1) * stride - 2 * o.padding[d] +
                              dilation * (weight.size(i) - 1) + o.output_padding[d] + 1;
    PEAL_CHECK(x.size(i) >= 1 && weight.size(i) >= 1 && size >= 1, op, ": a kernel of shape ",
               weight.shape(), " with padding ", o.padding[d], " leaves nothing of input ",
               x.shape());
    out.push_back(size);
  }
  return out;
}

Tensor transposed(std::string_view op, const Tensor& x, const Tensor& weight, const Shape& sizes,
                  const ConvTranspose2dOptions& o) {
  // Elements that no window reaches even without padding are zeros: kernels have no such geometry.
  bool beyond = false;
  for (std::size_t d = 0; d < 2; ++d) beyond = beyond || o.output_padding[d] >= o.stride[d];
  if (beyond) {
    ConvTranspose2dOptions whole = o;
    whole.padding = whole.output_padding = 0;
    Shape reached;
    std::vector<std::int64_t> pads;
    for (int i = 3; i >= 2; --i) {
      const auto d = static_cast<std::size_t>(i - 2);
      const std::int64_t size =
          (x.size(i) - 1) * o.stride[d] + o.dilation[d] * (weight.size(i) - 1) + 1;
      reached = i == 3 ? Shape{0, size} : Shape{size, reached[1]};
      pads.insert(pads.end(), {-o.padding[d], sizes[i - 2] - (size - o.padding[d])});
    }
    return padded(transposed(op, x, weight, reached, whole), pads);
  }
  const Conv2dGeometry geometry{x.size(0),         weight.size(1) * o.groups,
                                sizes[0],          sizes[1],
                                x.size(1),         x.size(2),
                                x.size(3),         weight.size(2),
                                weight.size(3),    o.stride.array(),
                                o.padding.array(), o.dilation.array(),
                                o.groups};
  return convolved_back(op, geometry, x, weight);
}

// [O] along the channels of y.
Tensor with_bias(const Tensor& y, const Tensor& bias) {
  if (!bias.defined()) return y;
  Shape shape{bias.size(0)};
  for (int i = 2; i < y.dim(); ++i) shape.push_back(1);
  return y + reshaped(bias, shape);
}

}  // namespace

Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) {
  constexpr std::string_view op = transpose2d.op;
  if (lowers(input, weight, bias)) {
    return conv_transpose2d(lowered(input), lowered(weight), lowered(bias), o);
  }
  TraceSpan span(op);
  return with_batch(input, 2, [&](const Tensor& x) {
    const Shape sizes = transposed_sizes(transpose2d, x, weight, bias, o);
    return with_bias(transposed(op, x, weight, sizes, o), bias);
  });
}

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& options) {
  constexpr std::string_view op = transpose1d.op;
  if (lowers(input, weight, bias)) {
    return conv_transpose1d(lowered(input), lowered(weight), lowered(bias), options);
  }
  TraceSpan span(op);
  const ConvTranspose2dOptions o{.stride = {1, options.stride},
                                 .padding = {0, options.padding},
                                 .output_padding = {0, options.output_padding},
                                 .groups = options.groups,
                                 .dilation = {1, options.dilation}};
  return with_batch(input, 1, [&](const Tensor& x) {
    const Shape sizes = transposed_sizes(transpose1d, x, weight, bias, o);
    const Tensor y = transposed(op, unsqueeze(x, 2), unsqueeze(weight, 2), Shape{1, sizes[0]}, o);
    return with_bias(squeeze(y, 2), bias);
  });
}

Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& o) {
  constexpr std::string_view op = transpose3d.op;
  if (lowers(input, weight, bias)) {
    return conv_transpose3d(lowered(input), lowered(weight), lowered(bias), o);
  }
  TraceSpan span(op);
  const ConvTranspose2dOptions plane{o.stride.plane(), o.padding.plane(), o.output_padding.plane(),
                                     o.groups, o.dilation.plane()};
  return with_batch(input, 3, [&](const Tensor& x) {
    const Shape sizes = transposed_sizes(transpose3d, x, weight, bias, o);
    const std::int64_t depth = x.size(2);
    const Tensor slices =
        reshaped(permute(x, {0, 2, 1, 3, 4}), {x.size(0) * depth, x.size(1), x.size(3), x.size(4)});
    const Tensor kernel = reshaped(
        weight, {weight.size(0), weight.size(1) * weight.size(2), weight.size(3), weight.size(4)});
    const Tensor y = transposed(op, slices, kernel, Shape{sizes[1], sizes[2]}, plane);
    const DepthWindows windows{depth, weight.size(2), o.stride.depth, o.dilation.depth};
    return with_bias(from_windows(y, windows, o.padding.depth, sizes[0]), bias);
  });
}

}  // namespace peal
