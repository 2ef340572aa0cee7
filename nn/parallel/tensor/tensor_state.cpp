// SPDX-License-Identifier: Apache-2.0
// What a tensor-parallel model has as a whole: its state, an optimizer's, and its gradients' norm.
#include <peal/autograd/core/error.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace peal::nn {
namespace {

constexpr std::string_view cut_model = "[tp] ";

}  // namespace

std::optional<Cut> TensorParallel::cut_of(std::string_view parameter) const {
  return nn::cut_of(*this, parameter);
}

double TensorParallel::clip_grad_norm_(double max_norm, double norm_type) {
  Tensors cut, whole;
  for (const auto& [name, parameter] : named_parameters()) {
    const Tensor gradient = parameter.grad();
    if (gradient.defined()) (cut_of(name) ? cut : whole).push_back(gradient);
  }
  return clip_over_ranks(cut, group_, max_norm, norm_type,
                         "the norm of a tensor-parallel model's gradients", whole);
}

NamedTensors TensorParallel::state_dict() const { return gathered({}); }

NamedTensors TensorParallel::gathered(std::optional<int> to) const {
  const NoGrad guard;
  const bool takes = !to || *to == group_.rank();
  const CutParameters cuts(*this);
  NamedTensors state = Module::state_dict();
  for (auto& [name, tensor] : state) {
    if (cuts.has(name)) continue;
    tensor = !takes ? Tensor() : to ? tensor.clone().to(Device{}) : tensor.clone();
  }
  state = cuts.whole(std::move(state), to);
  return takes ? state : NamedTensors();
}

IncompatibleKeys TensorParallel::load_state_dict(const NamedTensors& state, bool strict) {
  return Module::load_state_dict(CutParameters(*this).parts(state, cut_model), strict);
}

NamedTensors TensorParallel::optimizer_state_dict(const Optimizer& optimizer) const {
  return gathered(optimizer, {});
}

NamedTensors TensorParallel::gathered(const Optimizer& optimizer, std::optional<int> to) const {
  const NamedTensors parameters = named_parameters();
  NamedTensors state = optimizer.local_state_dict();
  for (const auto& [key, tensor] : state) {
    const std::string_view name = std::string_view(key).substr(0, key.rfind('.'));
    const bool known = std::ranges::any_of(
        parameters, [&](const auto& parameter) { return parameter.first == name; });
    PEAL_CHECK(tensor.dim() == 0 || known, cut_model, "optimizer_state_dict: ", key,
               " is of no parameter of the model; make the optimizer of named_parameters()");
  }
  state = CutParameters(*this).whole_of_optimizer(std::move(state), cut_model, to);
  return to && *to != group_.rank() ? NamedTensors() : state;
}

void TensorParallel::load_optimizer_state_dict(Optimizer& optimizer,
                                               const NamedTensors& state) const {
  optimizer.load_state_dict(CutParameters(*this).parts_of_optimizer(
      state, cut_model, [&](std::string_view name) { return optimizer.keeps_tensor(name); }));
}

ShardedState TensorParallel::saved() const {
  TensorParallel here = *this;
  return ShardedState(
      group_, "the model", [here](std::optional<int> to) { return here.gathered(to); },
      [here](const NamedTensors& state) mutable { here.load_state_dict(state); },
      no_local_state(cut_model, "the model"));
}

ShardedState TensorParallel::saved(Optimizer& optimizer) const {
  const TensorParallel here = *this;
  return ShardedState(
      group_, "the optimizer",
      [here, &optimizer](std::optional<int> to) { return here.gathered(optimizer, to); },
      [here, &optimizer](const NamedTensors& state) {
        here.load_optimizer_state_dict(optimizer, state);
      },
      no_local_state(cut_model, "the optimizer"));
}

}  // namespace peal::nn
