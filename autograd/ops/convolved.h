// SPDX-License-Identifier: Apache-2.0
// What convolutions have in common: where their batches begin, what they ask of their operands, and
// the gradient that is a transposed convolution. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/pair.h>
#include <peal/autograd/ops/shape.h>

#include <concepts>
#include <string_view>

namespace peal {

// f of x with a batch in front of its channels and `dims` dimensions more: of one without it, a
// batch of one.
template <class F>
Tensor with_batch(const Tensor& x, int dims, const F& f) {
  return x.dim() == dims + 1 ? squeeze(f(unsqueeze(x, 0)), 0) : f(x);
}

// The gradient to the input of a convolution of this geometry, of that to its result: [batch,
// in_channels, in_height, in_width]. Recorded, in its turn too (convolution.cpp).
Tensor convolved_back(std::string_view op, const Conv2dGeometry& geometry, const Tensor& g,
                      const Tensor& weight);

// What a convolution is called and what its tensors look like, for messages.
struct ConvForm {
  std::string_view op, input, kernel;
  int dim;
};

// The zeros that keep a size, on both sides together.
inline std::int64_t same_padding(std::string_view op, std::int64_t kernel, std::int64_t stride,
                                 std::int64_t dilation) {
  PEAL_CHECK(stride == 1, op, ": a padding of \"same\" is for strides of 1, got ", stride);
  return dilation * (kernel - 1);
}

// Of a type and device; under autocast a weight may still be f32 beside an x in bf16.
inline void check_conv_operands(std::string_view op, const Tensor& x, const Tensor& weight) {
  const bool later = context().autocast && x.dtype() == DType::bf16 &&
                     weight.dtype() == DType::f32 && weight.device() == x.device();
  if (!later) check_alike(op, x, weight);
}
// And a bias of `channels` or none.
inline void check_conv_types(std::string_view op, const Tensor& x, const Tensor& weight,
                             const Tensor& bias, std::int64_t channels) {
  check_conv_operands(op, x, weight);
  if (!bias.defined()) return;
  check_conv_operands(op, x, bias);
  PEAL_CHECK(bias.dim() == 1 && bias.size(0) == channels, op, ": expected a bias [", channels,
             "], got shape ", bias.shape());
}

// The sizes of the result behind [N, O]. The options' last numbers count where there are fewer.
template <class Options>
Shape convolved_sizes(const ConvForm& form, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Options& options) {
  constexpr int numbers = std::same_as<decltype(options.stride), Triple> ? 3 : 2;
  const std::string_view op = form.op;
  check_conv_operands(op, x, weight);
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
  check_conv_types(op, x, weight, bias, weight.size(0));
  Shape out;
  for (int i = 2; i < form.dim; ++i) {
    const auto d = static_cast<std::size_t>(i - form.dim + numbers);
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

}  // namespace peal
