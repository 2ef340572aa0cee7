// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/dropout.h>
#include <peal/nn/layers/weight_drop.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace peal::nn {
namespace {

// The parameters that are not dropped, by the layer's names.
struct Undropped : Module {
  using Module::add_parameter;
};

struct NamedWeight {
  const char* name;
  Tensor RecurrentWeights::*which;
};
constexpr std::array weight_names{NamedWeight{"weight_ih", &RecurrentWeights::ih},
                                  NamedWeight{"weight_hh", &RecurrentWeights::hh},
                                  NamedWeight{"bias_ih", &RecurrentWeights::bias_ih},
                                  NamedWeight{"bias_hh", &RecurrentWeights::bias_hh}};

}  // namespace

WeightDropBase::WeightDropBase(const Recurrent& layer, double p,
                               const std::vector<std::string>& names)
    : weights_(layer.weights()), p_(p) {
  PEAL_CHECK(p >= 0 && p <= 1, "WeightDrop: the probability must be in [0, 1], got ", p);
  Undropped rest;
  std::unordered_set<std::string> unknown(names.begin(), names.end());
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    for (const NamedWeight& each : weight_names) {
      const Tensor& tensor = weights_[k].*each.which;
      if (!tensor.defined()) continue;
      const std::string name = each.name + layer.suffix(k);
      const bool drops = names.empty() ? each.which == &RecurrentWeights::hh
                                       : std::find(names.begin(), names.end(), name) != names.end();
      unknown.erase(name);
      if (drops) {
        add_parameter(name + "_raw", tensor);
        dropped_.push_back({k, each.which});
      } else {
        rest.add_parameter(name, tensor);
      }
    }
  }
  PEAL_CHECK(unknown.empty(), "WeightDrop: the layer has no weight '", *unknown.begin(), "'");
  add("module", rest);
}

Recurrent::Weights WeightDropBase::drawn() const {
  Recurrent::Weights all = weights_;
  for (const Dropped& each : dropped_) {
    Tensor& weight = all[each.set].*each.which;
    weight = dropout(weight, p_, training());
  }
  return all;
}

}  // namespace peal::nn
