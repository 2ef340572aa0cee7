// SPDX-License-Identifier: Apache-2.0
// What layers print between their parentheses: PyTorch's text. (Of windows: window_repr.cpp.)
#include <peal/nn/layers/layers.h>
#include <peal/nn/python_text.h>

namespace peal::nn {
namespace {

// ", name=value"
template <class T>
std::string next_named(const char* name, const T& value) {
  return std::string(", ") + name + "=" + python_text(value);
}

template <class T>
std::string next_unless(const T& usual, const char* name, const T& value) {
  return value == usual ? "" : next_named(name, value);
}

std::string table(const Tensor& weight, const std::optional<double>& max_norm, double norm_type) {
  return concat(weight.size(0), ", ", weight.size(1)) +
         (max_norm ? next_named("max_norm", *max_norm) : "") +
         next_unless(2.0, "norm_type", norm_type);
}

// What is the same in all norms with a weight and a bias.
std::string normalising(double eps) { return next_named("eps", eps); }

}  // namespace

std::string GELU::extra_repr() const {
  return approximation_ == GeluApproximation::tanh ? "approximate='tanh'" : "approximate='none'";
}
std::string Softmax::extra_repr() const { return concat("dim=", dim_); }
std::string LogSoftmax::extra_repr() const { return concat("dim=", dim_); }
std::string Softmin::extra_repr() const { return concat("dim=", dim_); }
std::string GLU::extra_repr() const { return concat("dim=", dim_); }
std::string Softplus::extra_repr() const {
  return "beta=" + python_text(beta_) + next_named("threshold", threshold_);
}
std::string LeakyReLU::extra_repr() const {
  return "negative_slope=" + python_text(negative_slope_);
}
std::string PReLU::extra_repr() const { return concat("num_parameters=", weight.numel()); }
std::string RReLU::extra_repr() const {
  return "lower=" + python_text(lower_) + next_named("upper", upper_);
}
std::string ELU::extra_repr() const { return "alpha=" + python_text(alpha_); }
std::string CELU::extra_repr() const { return "alpha=" + python_text(alpha_); }
std::string Hardtanh::extra_repr() const {
  return "min_val=" + python_text(low_) + next_named("max_val", high_);
}
std::string Hardshrink::extra_repr() const { return python_text(lambda_); }
std::string Softshrink::extra_repr() const { return python_text(lambda_); }
std::string Threshold::extra_repr() const {
  return "threshold=" + python_text(threshold_) + next_named("value", value_);
}

std::string Dropout::extra_repr() const { return "p=" + python_text(p_) + ", inplace=False"; }

std::string Embedding::extra_repr() const {
  std::string text = concat(weight.size(0), ", ", weight.size(1));
  if (settings_.padding_idx) text += next_named("padding_idx", *settings_.padding_idx);
  if (settings_.max_norm) text += next_named("max_norm", *settings_.max_norm);
  return text + next_unless(2.0, "norm_type", settings_.norm_type);
}
std::string EmbeddingBag::extra_repr() const {
  const char* const mode = settings_.mode == BagMode::sum    ? "'sum'"
                           : settings_.mode == BagMode::mean ? "'mean'"
                                                             : "'max'";
  std::string text = table(weight, settings_.max_norm, settings_.norm_type) + ", mode=" + mode;
  if (settings_.padding_idx) text += next_named("padding_idx", *settings_.padding_idx);
  return text;
}

std::string Flatten::extra_repr() const {
  return concat("start_dim=", start_dim_, ", end_dim=", end_dim_);
}

std::string GroupNorm::extra_repr() const {
  return concat(groups_, ", ", channels_) + normalising(eps_) +
         next_named("affine", weight.defined()) + next_named("bias", bias.defined());
}
std::string RMSNorm::extra_repr() const {
  return python_text(shape_) + next_named("eps", eps_) +
         next_named("elementwise_affine", weight.defined());
}
std::string LocalResponseNorm::extra_repr() const {
  return std::to_string(size_) + next_named("alpha", options_.alpha) +
         next_named("beta", options_.beta) + next_named("k", options_.k);
}

std::string Linear::extra_repr() const {
  return concat("in_features=", weight.size(1), ", out_features=", weight.size(0)) +
         next_named("bias", bias.defined());
}

std::string LayerNorm::extra_repr() const {
  return python_text(shape_) + normalising(eps_) +
         next_named("elementwise_affine", weight.defined()) + next_named("bias", bias.defined());
}
std::string BatchNorm::extra_repr() const {
  return std::to_string(channels_) + normalising(settings_.eps) +
         next_named("momentum", settings_.momentum) + next_named("affine", weight.defined()) +
         next_named("bias", bias.defined()) +
         next_named("track_running_stats", running_mean.defined());
}

std::string Bilinear::extra_repr() const {
  return concat("in1_features=", weight.size(1), ", in2_features=", weight.size(2),
                ", out_features=", weight.size(0)) +
         next_named("bias", bias.defined());
}

std::string Unflatten::extra_repr() const {
  return concat("dim=", dim_, ", unflattened_size=") + python_text(sizes_);
}
std::string PixelShuffle::extra_repr() const { return concat("upscale_factor=", factor_); }
std::string PixelUnshuffle::extra_repr() const { return concat("downscale_factor=", factor_); }
std::string ChannelShuffle::extra_repr() const { return concat("groups=", groups_); }

std::string Recurrent::extra_repr() const {
  return concat(input_, ", ", hidden_) +
         next_unless(std::int64_t{1}, "num_layers", settings_.num_layers) +
         next_unless(true, "bias", settings_.bias) +
         next_unless(false, "batch_first", settings_.batch_first) +
         next_unless(0.0, "dropout", settings_.dropout) +
         next_unless(false, "bidirectional", settings_.bidirectional);
}

}  // namespace peal::nn
