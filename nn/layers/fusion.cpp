// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/fusion.h>
#include <peal/nn/layers/rearrange.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <typeinfo>

namespace peal::nn {
namespace {

struct Fused {
  Tensor weight, bias;
};

// In f64, so that each new number is rounded once.
Fused fused(const char* what, const Module& layer, const Tensor& weight, const Tensor& bias,
            const BatchNorm& norm) {
  PEAL_CHECK(!layer.training() && !norm.training(), what,
             ": expected both in evaluation, as the norm of a batch in training is no fixed map; "
             "call eval() before");
  PEAL_CHECK(norm.running_mean.defined(), what, ": the norm has no running statistics");
  const std::int64_t channels = weight.size(0);
  PEAL_CHECK(norm.running_mean.numel() == channels, what, ": expected a norm of ", channels,
             " channels, as come out of the layer, got ", norm.running_mean.numel());
  const NoGrad guard;
  const Autocast off(DType::bf16, false);
  const auto wide = [](const Tensor& x) { return cast(x.detach(), DType::f64); };
  Tensor scale = rsqrt(wide(norm.running_var) + norm.eps());
  if (norm.weight.defined()) scale = scale * wide(norm.weight);
  Tensor shift = -wide(norm.running_mean);
  if (bias.defined()) shift = shift + wide(bias);
  shift = shift * scale;
  if (norm.bias.defined()) shift = shift + wide(norm.bias);
  std::vector<std::int64_t> along(static_cast<std::size_t>(weight.dim()), 1);
  along[0] = channels;
  return {cast(wide(weight) * reshape(scale, along), weight.dtype()).clone(),
          cast(shift, weight.dtype()).clone()};
}

template <class M>
M as_before(M made, const M& layer) {
  made.weight.set_requires_grad(layer.weight.requires_grad());
  made.bias.set_requires_grad(layer.weight.requires_grad());
  made.eval();
  return made;
}

template <class Conv>
Conv fused_conv(const Conv& conv, const BatchNorm& norm) {
  const auto [weight, bias] = fused("fuse_conv_bn_eval", conv, conv.weight, conv.bias, norm);
  return as_before(conv.over(weight, bias), conv);
}

}  // namespace

Conv1d fuse_conv_bn_eval(const Conv1d& conv, const BatchNorm& norm) {
  return fused_conv(conv, norm);
}
Conv2d fuse_conv_bn_eval(const Conv2d& conv, const BatchNorm& norm) {
  return fused_conv(conv, norm);
}
Conv3d fuse_conv_bn_eval(const Conv3d& conv, const BatchNorm& norm) {
  return fused_conv(conv, norm);
}
Linear fuse_linear_bn_eval(const Linear& linear, const BatchNorm& norm) {
  const auto [weight, bias] =
      fused("fuse_linear_bn_eval", linear, linear.weight, linear.bias, norm);
  return as_before(Linear(weight, bias), linear);
}

namespace {

// A layer that may be folded into, or a norm, and what a forward showed of it.
struct Seen {
  std::string path;
  Module module;
  std::uint64_t hook = 0;
  int calls = 0;
  Tensor tensor{};  // a layer's output, a norm's input
};

template <class M>
bool is_plain(Module& module) {
  const M* const found = module.as<M>();
  return found != nullptr && typeid(*found) == typeid(M);
}

// The layer with the norm folded in. REQUIRES: is_layer(layer).
Module folded(Module& layer, const BatchNorm& norm) {
  if (is_plain<Conv1d>(layer)) return fuse_conv_bn_eval(*layer.as<Conv1d>(), norm);
  if (is_plain<Conv2d>(layer)) return fuse_conv_bn_eval(*layer.as<Conv2d>(), norm);
  if (is_plain<Conv3d>(layer)) return fuse_conv_bn_eval(*layer.as<Conv3d>(), norm);
  return fuse_linear_bn_eval(*layer.as<Linear>(), norm);
}

bool is_norm(Module& module) {
  return is_plain<BatchNorm1d>(module) || is_plain<BatchNorm2d>(module) ||
         is_plain<BatchNorm3d>(module);
}

bool is_layer(Module& module) {
  return is_plain<Conv1d>(module) || is_plain<Conv2d>(module) || is_plain<Conv3d>(module) ||
         is_plain<Linear>(module);
}

using SeenAll = std::vector<std::shared_ptr<Seen>>;

// Watches them through one forward.
Tensor watched(Module& model, const Tensor& x, SeenAll& layers, SeenAll& norms) {
  for (auto& [path, module] : model.named_modules()) {
    if (path.empty() || module.has_hooks()) continue;
    if (is_layer(module)) layers.push_back(std::make_shared<Seen>(Seen{path, module}));
    if (is_norm(module)) norms.push_back(std::make_shared<Seen>(Seen{path, module}));
  }
  for (const auto& each : layers) {
    each->hook = each->module.add_hook([each](Module&, const Tensor&, const Tensor& output) {
      ++each->calls;
      each->tensor = output;
      return Tensor();
    });
  }
  for (const auto& each : norms) {
    each->hook = each->module.add_pre_hook([each](Module&, const Tensor& input) {
      ++each->calls;
      each->tensor = input;
      return Tensor();
    });
  }
  const auto remove = [&] {
    for (const SeenAll* all : {&layers, &norms}) {
      for (const auto& each : *all) each->module.remove_hook(each->hook);
    }
  };
  try {
    Tensor y = model(x);
    remove();
    return y;
  } catch (...) {
    remove();
    throw;
  }
}

// A layer with the norm behind it, and what is to stand in their places.
struct Neighbours {
  std::string layer_path, norm_path;
  Module layer, norm, folded, nothing;
};

// Whether the norm gets what the layer gives, with the layer's channels behind a batch: of as many
// dimensions as its weight, then.
bool feeds(const Seen& layer, const Seen& norm) {
  return layer.calls == 1 && norm.calls == 1 && layer.tensor.same_as(norm.tensor) &&
         layer.tensor.dim() == layer.module.get_parameter("weight").dim();
}

// Of a forward of x, whose result comes in `y`; whatever else it gave is let go of again.
std::vector<Neighbours> neighbours(Module& model, const Tensor& x, Tensor& y) {
  SeenAll layers, norms;
  y = watched(model, x, layers, norms);
  std::vector<Neighbours> pairs;
  for (const auto& norm : norms) {
    for (const auto& layer : layers) {
      const BatchNorm& last = *norm->module.as<BatchNorm>();
      if (!feeds(*layer, *norm) || !last.running_mean.defined()) continue;
      Module nothing = Identity();
      nothing.eval();
      pairs.push_back({layer->path, norm->path, layer->module, norm->module,
                       folded(layer->module, last), nothing});
    }
  }
  return pairs;
}

// How far b is from a, beside a's largest.
double distance(const Tensor& a, const Tensor& b) {
  const auto wide = [](const Tensor& x) { return cast(x.detach(), DType::f64); };
  const auto largest = [](const Tensor& x) { return amax(abs(x)).item<double>(); };
  return largest(wide(a) - wide(b)) / std::max(largest(wide(a)), 1e-30);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fuse_eval(Module& model, const Tensor& x) {
  for (const auto& [path, module] : model.named_modules()) {
    PEAL_CHECK(!module.training(),
               "fuse_eval: ", path.empty() ? "the model" : concat("'", path, "'"),
               " is in training; call eval() before");
  }
  const NoGrad guard;
  Tensor before;
  const std::vector<Neighbours> pairs = neighbours(model, x, before);
  PEAL_CHECK(before.numel() > 0, "fuse_eval: outputs of shape ", before.shape(),
             " show no difference; give an x of at least one sample");
  const auto put_back = [&] {
    for (const Neighbours& pair : pairs) {
      model.replace_child(pair.layer_path, pair.layer);
      model.replace_child(pair.norm_path, pair.norm);
    }
  };
  std::vector<std::pair<std::string, std::string>> paths;
  double far = 0;
  try {
    for (const Neighbours& pair : pairs) {
      model.replace_child(pair.layer_path, pair.folded);
      model.replace_child(pair.norm_path, pair.nothing);
      paths.emplace_back(pair.layer_path, pair.norm_path);
    }
    far = distance(before, model(x));
  } catch (...) {
    put_back();
    throw;
  }
  const double most = is_low_precision(before.dtype()) ? 0.1 : 0.01;
  if (far < most) return paths;
  put_back();
  fail(concat("fuse_eval: the outputs differ by ", far,
              " of the largest with batch norms folded, expected less than ", most,
              ": something else reads what one of the layers before them gives; fold by hand "
              "(fuse_conv_bn_eval, replace_child)"));
}

}  // namespace peal::nn
