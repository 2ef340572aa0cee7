// SPDX-License-Identifier: Apache-2.0
// What a tensor-parallel model has as a whole: its state, an optimizer's, and its gradients' norm.
#include <peal/autograd/core/error.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>

#include <unordered_map>

namespace peal::nn {

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

namespace {

// One rank's alone goes to the host, so that a device has no two of them at a time.
Tensor kept(Tensor whole, std::optional<int> to, const comm::ProcessGroup& group) {
  if (!to) return whole;
  return *to == group.rank() ? whole.to(Device{}) : Tensor();
}

}  // namespace

NamedTensors TensorParallel::state_dict() const { return gathered({}); }

NamedTensors TensorParallel::gathered(std::optional<int> to) const {
  const NoGrad guard;
  NamedTensors state = Module::state_dict();
  std::unordered_map<const void*, Tensor> wholes;  // a tied one once
  for (auto& [name, tensor] : state) {
    const auto cut = cut_of(name);
    if (!cut) {
      tensor = to && *to != group_.rank() ? Tensor() : kept(tensor.clone(), to, group_);
      continue;
    }
    const auto [found, is_new] = wholes.try_emplace(tensor.raw());
    if (is_new) found->second = kept(whole_of(tensor, *cut, group_, name), to, group_);
    tensor = found->second;
  }
  return to && *to != group_.rank() ? NamedTensors() : state;
}

IncompatibleKeys TensorParallel::load_state_dict(const NamedTensors& state, bool strict) {
  NamedTensors mine = state;
  const NamedTensors own = Module::state_dict();
  std::unordered_map<std::string_view, bool> known;
  for (const auto& [name, tensor] : own) known.emplace(name, true);
  for (auto& [name, tensor] : mine) {
    const auto cut = known.contains(name) ? cut_of(name) : std::nullopt;
    if (!cut) continue;
    PEAL_CHECK(tensor.shape() == cut->whole, "[tp] load_state_dict: ", name, ": expected ",
               cut->whole, ", got ", tensor.shape(), "; a state is the plain model's");
    tensor = part_of(tensor, *cut, group_.rank(), group_.world());
  }
  return Module::load_state_dict(mine, strict);
}

namespace {

// "fc1.weight.exp_avg": of which parameter.
const Tensor* parameter_of(const NamedTensors& parameters, std::string_view key) {
  const std::string_view name = key.substr(0, key.rfind('.'));
  for (const auto& [own, parameter] : parameters) {
    if (own == name) return &parameter;
  }
  return nullptr;
}

}  // namespace

NamedTensors TensorParallel::optimizer_state_dict(const Optimizer& optimizer) const {
  return gathered(optimizer, {});
}

NamedTensors TensorParallel::gathered(const Optimizer& optimizer, std::optional<int> to) const {
  const NoGrad guard;
  const NamedTensors parameters = named_parameters();
  NamedTensors state = optimizer.local_state_dict();
  for (auto& [key, tensor] : state) {
    if (tensor.dim() == 0) continue;  // a number, the same everywhere
    const Tensor* const parameter = parameter_of(parameters, key);
    PEAL_CHECK(parameter != nullptr, "[tp] optimizer_state_dict: ", key,
               " is of no parameter of the model; make the optimizer of named_parameters()");
    const auto cut = cut_of(std::string_view(key).substr(0, key.rfind('.')));
    if (!cut) continue;
    PEAL_CHECK(tensor.shape() == parameter->shape(), "[tp] optimizer_state_dict: ", key,
               ": of a part ", parameter->shape(), " expected a state of that shape, got ",
               tensor.shape());
    tensor = kept(whole_of(tensor, *cut, group_, key), to, group_);
  }
  return to && *to != group_.rank() ? NamedTensors() : state;
}

void TensorParallel::load_optimizer_state_dict(Optimizer& optimizer,
                                               const NamedTensors& state) const {
  const NamedTensors parameters = named_parameters();
  NamedTensors mine = state;
  for (auto& [key, tensor] : mine) {
    if (key.starts_with("groups.") || parameter_of(parameters, key) == nullptr) continue;
    const std::size_t dot = key.rfind('.');
    const auto cut = cut_of(std::string_view(key).substr(0, dot));
    if (!cut || !optimizer.keeps_tensor(std::string_view(key).substr(dot + 1))) continue;
    PEAL_CHECK(tensor.shape() == cut->whole, "[tp] load_optimizer_state_dict: ", key, ": expected ",
               cut->whole, ", got ", tensor.shape());
    tensor = part_of(tensor, *cut, group_.rank(), group_.world());
  }
  optimizer.load_state_dict(mine);
}

namespace {

// Sharded checkpoints are of runs of elements.
LocalState no_runs(const std::string& what) {
  const auto refuse = [what] {
    fail(concat("[tp] a sharded checkpoint of ", what,
                " of a tensor-parallel model: its layers are cut by columns as well, which are no "
                "runs of elements; save it in a checkpoint of one file (nn/checkpoint.h)"));
  };
  return {[refuse]() -> std::vector<LocalTensor> {
            refuse();
            return {};
          },
          [refuse](const std::vector<SavedTensor>&) -> WantedRanges {
            refuse();
            return {};
          },
          [refuse](const NamedTensors&) { refuse(); }};
}

}  // namespace

ShardedState TensorParallel::saved() const {
  TensorParallel here = *this;
  return ShardedState(
      group_, "the model", [here](std::optional<int> to) { return here.gathered(to); },
      [here](const NamedTensors& state) mutable { here.load_state_dict(state); },
      no_runs("the model"));
}

ShardedState TensorParallel::saved(Optimizer& optimizer) const {
  const TensorParallel here = *this;
  return ShardedState(
      group_, "the optimizer",
      [here, &optimizer](std::optional<int> to) { return here.gathered(optimizer, to); },
      [here, &optimizer](const NamedTensors& state) {
        here.load_optimizer_state_dict(optimizer, state);
      },
      no_runs("the optimizer"));
}

}  // namespace peal::nn
