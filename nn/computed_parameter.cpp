// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/computed_parameter.h>
#include <peal/nn/module_hooks.h>

namespace peal::nn {
namespace {

// All handles of `weight` are handles of this value from now on, with its place in the graph.
void stand_for(const Tensor& weight, const Tensor& value) {
  TensorBody& to = weight.body();
  const TensorBody& from = value.body();
  to.storage = from.storage;
  to.at = from.at;
  to.shape = from.shape;
  to.dtype = from.dtype;
  to.node = from.node;
  to.output = from.output;
  to.slot = from.slot;
  to.requires_grad = from.requires_grad;
}

}  // namespace

void compute_before_forward(Module& module, const Tensor& weight,
                            std::function<Tensor(bool training)> compute) {
  stand_for(weight, weight.detach());
  module.hooks()->computes_parameters = true;
  module.register_forward_pre_hook(
      [weight, compute = std::move(compute)](Module& here, const Tensors&) -> Module::Replaced {
        stand_for(weight, compute(here.training()));
        return std::nullopt;
      });
}

}  // namespace peal::nn
