// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/norms.h>
#include <peal/nn/layers/group_norm.h>
#include <peal/nn/layers/norm.h>

namespace peal::launch {
namespace {

bool is_norm(nn::Module& module) {
  const auto is = [&]<class... Norms>() { return ((module.as<Norms>() != nullptr) || ...); };
  return is.operator()<nn::BatchNorm, nn::LayerNorm, nn::GroupNorm, nn::RMSNorm, nn::InstanceNorm1d,
                       nn::InstanceNorm2d, nn::InstanceNorm3d>();
}

}  // namespace

std::set<std::string> parameters_of_norms(const nn::Module& model) {
  std::set<std::string> names;
  for (auto& [path, module] : model.named_modules()) {
    nn::Module here = module;
    if (!is_norm(here)) continue;
    for (const char* each : {"weight", "bias"})
      names.insert(path.empty() ? each : path + "." + each);
  }
  return names;
}

bool is_bias(const std::string& name) { return name == "bias" || name.ends_with(".bias"); }

}  // namespace peal::launch
