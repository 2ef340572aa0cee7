// SPDX-License-Identifier: Apache-2.0
// What is asked of sharded parameters as a whole: their values by name, and the norm of gradients.
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>

#include <cmath>
#include <map>
#include <utility>

namespace peal::nn {

NamedTensors FullyShardedDataParallel::state_dict() const {
  state_->check_idle("state_dict");
  return state_->gathered({});
}

NamedTensors FullyShardedDataParallel::State::gathered(std::optional<int> to) {
  const NoGrad guard;
  const bool takes = !to || *to == group.rank();
  NamedTensors all = module.state_dict();
  std::map<std::pair<const Storage*, std::int64_t>, Tensor> copies;  // tied ones stay tied
  const auto copy_those_there = [&] {
    for (auto& [name, tensor] : all) {
      if (!tensor.storage()->has_bytes() || tensor.numel() == 0) continue;
      Tensor& copy = copies[{tensor.storage().get(), tensor.body().at}];
      if (!copy.defined()) copy = tensor.clone();
    }
  };
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    bring(unit);
    if (takes) copy_those_there();
    take_away(unit);
  }
  if (!takes) return {};
  for (auto& [name, tensor] : all) {
    tensor = tensor.numel() == 0 ? Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())
                                 : copies.at({tensor.storage().get(), tensor.body().at}).detach();
  }
  return all;
}

IncompatibleKeys FullyShardedDataParallel::load_state_dict(const NamedTensors& state, bool strict) {
  const std::shared_ptr<void> there = summon_full_parameters();
  return Module::load_state_dict(state, strict);
}

void FullyShardedDataParallel::zero_grad() {
  Module::zero_grad();
  for (State::Unit& unit : state_->units) {
    for (FlatParameter& flat : unit.flats) {
      if (flat.plan().trained) flat.reconcile();
    }
  }
}

double FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  PEAL_CHECK(max_norm >= 0 && norm_type >= 1,
             "clip_grad_norm_: expected max_norm >= 0 and norm_type >= 1, got ", max_norm, " and ",
             norm_type);
  const NoGrad guard;
  for (State::Unit& unit : state_->units) {
    for (FlatParameter& flat : unit.flats) {
      if (!flat.plan().trained) continue;
      flat.reconcile();
      PEAL_CHECK(!flat.waits() || !flat.has_some(), "[fsdp] clip_grad_norm_: the gradients of ",
                 flat.names(), " are not averaged yet: the last backward was under no_sync()");
    }
  }
  Tensors gradients;
  for (const auto& [name, piece] : local_parameters()) {
    if (piece.grad().defined()) gradients.push_back(piece.grad());
  }
  const bool largest = std::isinf(norm_type);
  const Tensor sum = Tensor::scalar(power_sum_of(gradients, norm_type), Device{});
  state_->group
      .all_reduce(sum, largest ? comm::ReduceOp::max : comm::ReduceOp::sum,
                  {"the norm of sharded gradients", state_->tag})
      .wait();
  const double norm = largest ? sum.item<double>() : std::pow(sum.item<double>(), 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1)) scale_all(gradients, factor);
  return norm;
}

}  // namespace peal::nn
