// SPDX-License-Identifier: Apache-2.0
// What layers with windows print between their parentheses: PyTorch's text.
#include <peal/nn/layers/layers.h>
#include <peal/nn/python_text.h>

namespace peal::nn {
namespace {

std::string in_tuple(std::int64_t value) { return python_text(std::vector<std::int64_t>{value}); }
std::string in_tuple(const Single& value) { return in_tuple(value.length); }
std::string in_tuple(const Pair& value) { return python_text(value); }
std::string in_tuple(const Triple& value) { return python_text(value); }

template <class Value>
std::string unless_same(const char* name, const Value& value, std::int64_t usual) {
  return value == Value(usual) ? "" : concat(", ", name, "=", in_tuple(value));
}

std::string kernel_of(const Tensor& weight) {
  std::vector<std::int64_t> sizes;
  for (int i = 2; i < weight.dim(); ++i) sizes.push_back(weight.size(i));
  return python_text(sizes);
}

std::string groups_and_bias(std::int64_t groups, const Tensor& bias) {
  return (groups == 1 ? "" : concat(", groups=", groups)) + (bias.defined() ? "" : ", bias=False");
}

template <class Options>
std::string convolution(const Tensor& weight, const Tensor& bias, const Options& o, PadMode mode) {
  std::string line = concat(weight.size(1) * o.groups, ", ", weight.size(0),
                            ", kernel_size=", kernel_of(weight), ", stride=", in_tuple(o.stride));
  using Numbers = decltype(o.padding);
  line += o.padding.word.empty() ? unless_same<Numbers>("padding", o.padding, 0)
                                 : concat(", padding=", o.padding.word);
  line += unless_same("dilation", o.dilation, 1) + groups_and_bias(o.groups, bias);
  const char* const modes[] = {"", "reflect", "replicate", "circular"};
  return mode == PadMode::constant
             ? line
             : line + ", padding_mode=" + modes[static_cast<std::size_t>(mode)];
}

template <class Options>
std::string transposed(const Tensor& weight, const Tensor& bias, const Options& o) {
  return concat(weight.size(0), ", ", weight.size(1) * o.groups,
                ", kernel_size=", kernel_of(weight), ", stride=", in_tuple(o.stride)) +
         unless_same("padding", o.padding, 0) + unless_same("dilation", o.dilation, 1) +
         unless_same("output_padding", o.output_padding, 0) + groups_and_bias(o.groups, bias);
}

std::string unfolding(Pair kernel, const UnfoldOptions& o) {
  return "kernel_size=" + python_short(kernel) + ", dilation=" + python_short(o.dilation) +
         ", padding=" + python_short(o.padding) + ", stride=" + python_short(o.stride);
}

std::string in_short(std::int64_t value) { return std::to_string(value); }
std::string in_short(const Single& value) { return std::to_string(value.length); }
std::string in_short(const Pair& value) { return python_short(value); }
std::string in_short(const Triple& value) { return python_short(value); }

template <class Kernel, class Options>
std::string mean_of(const Kernel& kernel, const Options& o) {
  return "kernel_size=" + in_short(kernel) + ", stride=" + in_short(o.stride.value_or(kernel)) +
         ", padding=" + in_short(o.padding);
}

template <class Kernel, class Options>
std::string maximum(const Kernel& kernel, const Options& o) {
  return mean_of(kernel, o) + ", dilation=" + in_short(o.dilation) +
         ", ceil_mode=" + python_text(o.ceil_mode);
}

template <class Kernel, class Options>
std::string in_tuples(const Kernel& kernel, const Options& o) {
  return "kernel_size=" + in_tuple(kernel) + ", stride=" + in_tuple(o.stride.value_or(kernel)) +
         ", padding=" + in_tuple(o.padding);
}

template <class Kernel, class Stride>
std::string powers_of(double p, const Kernel& kernel, const Stride& stride, bool ceil_mode) {
  return concat("norm_type=", p, ", kernel_size=", in_short(kernel),
                ", stride=", stride ? in_short(*stride) : "None",
                ", ceil_mode=", python_text(ceil_mode));
}

}  // namespace

std::string Conv1d::extra_repr() const {
  return convolution(weight, bias, options_, padding_mode_);
}
std::string Conv2d::extra_repr() const {
  return convolution(weight, bias, options_, padding_mode_);
}
std::string Conv3d::extra_repr() const {
  return convolution(weight, bias, options_, padding_mode_);
}
std::string ConvTranspose1d::extra_repr() const { return transposed(weight, bias, options_); }
std::string ConvTranspose2d::extra_repr() const { return transposed(weight, bias, options_); }
std::string ConvTranspose3d::extra_repr() const { return transposed(weight, bias, options_); }

std::string Unfold::extra_repr() const { return unfolding(kernel_, options_); }
std::string Fold::extra_repr() const {
  return "output_size=" + python_short(size_) + ", " + unfolding(kernel_, options_);
}

std::string MaxPool1d::extra_repr() const { return maximum(kernel_, options_); }
std::string MaxPool2d::extra_repr() const { return maximum(kernel_, options_); }
std::string MaxPool3d::extra_repr() const { return maximum(kernel_, options_); }
std::string AvgPool1d::extra_repr() const { return in_tuples(kernel_, options_); }
std::string AvgPool2d::extra_repr() const { return mean_of(kernel_, options_); }
std::string AvgPool3d::extra_repr() const { return mean_of(kernel_, options_); }
std::string AdaptiveAvgPool1d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string AdaptiveAvgPool3d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string AdaptiveMaxPool1d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string AdaptiveMaxPool2d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string AdaptiveMaxPool3d::extra_repr() const { return "output_size=" + in_short(size_); }
std::string LPPool1d::extra_repr() const {
  return powers_of(norm_type_, kernel_, stride_, ceil_mode_);
}
std::string LPPool2d::extra_repr() const {
  return powers_of(norm_type_, kernel_, stride_, ceil_mode_);
}
std::string LPPool3d::extra_repr() const {
  return powers_of(norm_type_, kernel_, stride_, ceil_mode_);
}
std::string MaxUnpool1d::extra_repr() const { return in_tuples(kernel_, options_); }
std::string MaxUnpool2d::extra_repr() const { return in_tuples(kernel_, options_); }
std::string MaxUnpool3d::extra_repr() const { return in_tuples(kernel_, options_); }

std::string Upsample::extra_repr() const {
  const char* const modes[] = {"nearest",   "nearest-exact", "linear", "bilinear",
                               "trilinear", "bicubic",       "area"};
  const auto list = [](const auto& numbers) {
    std::string text;
    for (const auto& each : numbers.values) text += (text.empty() ? "" : ", ") + python_text(each);
    return numbers.one ? text : "(" + text + (numbers.values.size() == 1 ? ",)" : ")");
  };
  return (options_.size ? "size=" + list(options_.size)
                        : "scale_factor=" + list(options_.scale_factor)) +
         ", mode='" + modes[static_cast<std::size_t>(options_.mode)] + "'";
}

}  // namespace peal::nn
