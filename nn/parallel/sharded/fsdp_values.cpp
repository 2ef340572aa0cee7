// SPDX-License-Identifier: Apache-2.0
// What is asked of sharded parameters as a whole: their values by name, and the norm of gradients;
// and the types of what goes into the model and comes out.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>

#include <map>
#include <utility>

namespace peal::nn {

NamedTensors FullyShardedDataParallel::state_dict() const {
  state_->check_idle("state_dict");
  return state_->gathered({});
}

NamedTensors FullyShardedDataParallel::State::gathered(std::optional<int> to) {
  const NoGrad guard;
  const bool is_taken = takes(to);
  if (to) check_ignored_are_equal();
  NamedTensors all;
  std::map<std::pair<const Storage*, std::int64_t>, Tensor> copies;  // tied ones stay tied
  const auto copy_those_there = [&] {
    for (auto& [name, tensor] : all) {
      if (!tensor.storage()->has_bytes() || tensor.numel() == 0) continue;
      Tensor& copy = copies[{tensor.storage().get(), tensor.body().at}];
      if (!copy.defined()) copy = tensor.clone();
    }
  };
  at_masters([&] {
    all = module.state_dict();
    for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
      bring(unit);
      if (is_taken) copy_those_there();
      take_away(unit);
    }
  });
  turn(false);
  if (!is_taken) return {};
  for (auto& [name, tensor] : all) {
    tensor = tensor.numel() == 0 ? Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())
                                 : copies.at({tensor.storage().get(), tensor.body().at}).detach();
  }
  copies.clear();
  all = cuts.whole(std::move(all), saver(to));
  return is_left_out(to) ? NamedTensors() : all;
}

void FullyShardedDataParallel::State::check_ignored_are_equal() const {
  std::string mine;
  for (const auto& [name, tensor] : ignored) mine += digest_line(name, tensor);
  if (!ignored.empty()) comm::agree(groups.all, "[fsdp] the model", mine, advice_on_apart);
}

// On one rank `to` is one of savers().
bool FullyShardedDataParallel::State::takes(std::optional<int> to) const {
  return !to || groups.all.world() == 1 || *to == groups.all.rank();
}

std::optional<int> FullyShardedDataParallel::State::saver(std::optional<int> to) const {
  return to && groups.all.world() > 1 ? 0 : to;
}

bool FullyShardedDataParallel::State::is_left_out(std::optional<int> to) const {
  return to && cuts && saver(to) != cuts.group().rank();
}

IncompatibleKeys FullyShardedDataParallel::load_state_dict(const NamedTensors& state, bool strict) {
  const NamedTensors mine = state_->cuts.parts(state, "[fsdp] ");
  const std::shared_ptr<void> there = summon_full_parameters();
  return Module::load_state_dict(mine, strict);
}

// Summoned, the model is of its own type.
std::optional<Tensors> FullyShardedDataParallel::State::rounded(const Tensors& inputs) const {
  if (!options.mixed_precision.param_dtype || summoned_) return std::nullopt;
  Tensors all = inputs;
  for (Tensor& each : all) each = rounded_input(each, options.mixed_precision);
  return all;
}

std::optional<Tensors> FullyShardedDataParallel::State::given(const Tensors& outputs) const {
  if (!options.mixed_precision.output_dtype || summoned_) return std::nullopt;
  Tensors all = outputs;
  for (Tensor& each : all) each = given_output(each, options.mixed_precision);
  return all;
}

void FullyShardedDataParallel::zero_grad() {
  state_->check_not_left();
  Module::zero_grad();
  for (State::Unit& unit : state_->units) {
    for (FlatParameter& flat : unit.flats) {
      if (flat.plan().trained) flat.reconcile();
    }
  }
}

double FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  check_clipping(max_norm, norm_type);
  state_->check_not_left();
  for (State::Unit& unit : state_->units) {
    for (FlatParameter& flat : unit.flats) {
      if (!flat.plan().trained) continue;
      flat.reconcile();
      PEAL_CHECK(!flat.waits() || !flat.has_some(), "[fsdp] clip_grad_norm_: the gradients of ",
                 flat.names(), " are not averaged yet: the last backward was under no_sync()");
    }
  }
  const CutParameters& cuts = state_->cuts;
  Tensors gradients, none;
  CutGradients cut{{}, {}, cuts.group()};
  for (const auto& [name, piece] : state_->pieces()) {
    if (piece.grad().defined())
      (cuts.has(name) ? cut.gradients : gradients).push_back(piece.grad());
  }
  // One sum for all, so that replicas, whose rows may add up in other orders, scale by one factor.
  const ShardGroups& groups = state_->groups;
  if (groups.replicas && groups.replicas.rank() > 0) {
    std::swap(gradients, none);
    std::swap(cut.gradients, cut.replicated);
  }
  return clip_over_ranks(gradients, groups.all, max_norm, norm_type,
                         {"the norm of sharded gradients", state_->tag}, none, cut);
}

}  // namespace peal::nn
