// SPDX-License-Identifier: Apache-2.0
// An optimizer's state, of pieces and of whole parameters.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

bool FullyShardedDataParallel::State::with_parameter(
    std::string_view key,
    const std::function<void(const FlatParameter&, std::size_t, const ParameterSpec&)>& f) const {
  const std::string_view name = key.substr(0, key.rfind('.'));
  for (const Unit& unit : units) {
    for (const FlatParameter& flat : unit.flats) {
      for (std::size_t e = 0; e < flat.pieces().size(); ++e) {
        const auto p = static_cast<std::size_t>(flat.plan().entries[e].parameter);
        if (outline.parameters[p].name != name) continue;
        f(flat, e, outline.parameters[p]);
        return true;
      }
    }
  }
  return false;
}

bool FullyShardedDataParallel::State::is_ignored(std::string_view parameter) const {
  return std::ranges::any_of(ignored, [&](const auto& each) { return each.first == parameter; });
}

bool FullyShardedDataParallel::State::is_of_ignored(std::string_view key) const {
  return is_ignored(key.substr(0, key.rfind('.')));
}

void FullyShardedDataParallel::State::check_pieces(const NamedTensors& state) const {
  for (const auto& [key, tensor] : state) {
    if (tensor.dim() == 0) continue;
    const bool found = with_parameter(
        key, [&, &key = key, &tensor = tensor](const FlatParameter& flat, std::size_t entry,
                                               const ParameterSpec&) {
          const Shape mine = flat.pieces()[entry].second.shape();
          PEAL_CHECK(tensor.shape() == mine, key, ": of a piece ", mine,
                     " expected a state of that shape, got ", tensor.shape());
        });
    PEAL_CHECK(found || is_of_ignored(key), key,
               " is of no parameter of the model; make the optimizer of local_parameters()");
  }
}

NamedTensors FullyShardedDataParallel::optimizer_state_dict(const Optimizer& optimizer) const {
  return state_->gathered(optimizer, {});
}

NamedTensors FullyShardedDataParallel::State::gathered(const Optimizer& optimizer,
                                                       std::optional<int> to) const {
  const NoGrad guard;
  const bool is_taken = takes(to);
  NamedTensors state;
  std::string mine;  // what all ranks gather, or one saves for all
  const std::string wrong = why_not([&] {
    state = optimizer.local_state_dict();
    check_pieces(state);
    for (const auto& [key, tensor] : state) {
      if (tensor.dim() == 0) continue;
      if (!is_of_ignored(key)) {
        mine += "\n" + key;
      } else if (to) {
        mine += digest_line(key, tensor);
      }
    }
  });
  comm::agree_unless(groups.all, "[fsdp] optimizer_state_dict", mine, wrong, advice_on_apart);
  for (auto& [key, tensor] : state) {
    if (tensor.dim() == 0) continue;  // a number, the same everywhere
    with_parameter(key, [&, &key = key, &tensor = tensor](const FlatParameter& flat,
                                                          std::size_t entry,
                                                          const ParameterSpec& parameter) {
      const auto& at = flat.plan().entries[entry];
      std::vector<std::int64_t> counts;
      for (int rank = 0; rank < groups.shards.world(); ++rank) {
        counts.push_back(piece_of(flat.plan(), at, parameter.shape.numel(), rank).count);
      }
      const Tensor whole = Tensor::empty(parameter.shape, tensor.dtype(), tensor.device());
      groups.shards
          .all_gather_v(whole.view(), tensor.view(), counts, {concat("optimizer state ", key), tag})
          .wait();
      if (is_taken) tensor = whole;
    });
  }
  if (!is_taken) return {};
  state = cuts.whole_of_optimizer(std::move(state), "[fsdp] ", saver(to));
  return is_left_out(to) ? NamedTensors() : state;
}

void FullyShardedDataParallel::load_optimizer_state_dict(Optimizer& optimizer,
                                                         const NamedTensors& state) const {
  const NoGrad guard;
  NamedTensors mine = state_->cuts.parts_of_optimizer(
      state, "[fsdp] ", [&](std::string_view what) { return optimizer.keeps_tensor(what); });
  for (auto& [key, tensor] : mine) {
    state_->with_parameter(
        key, [&, &key = key, &tensor = tensor](const FlatParameter& flat, std::size_t entry,
                                               const ParameterSpec& parameter) {
          const std::string_view what = std::string_view(key).substr(parameter.name.size() + 1);
          if (!optimizer.keeps_tensor(what)) return;
          PEAL_CHECK(tensor.shape() == parameter.shape, "[fsdp] load_optimizer_state_dict: ", key,
                     ": expected ", parameter.shape, ", got ", tensor.shape());
          const Piece piece = piece_of(flat.plan(), flat.plan().entries[entry],
                                       parameter.shape.numel(), state_->groups.shards.rank());
          tensor = tensor.detach({piece.count}, piece.first);
        });
  }
  optimizer.load_state_dict(mine);
}

}  // namespace peal::nn
