// SPDX-License-Identifier: Apache-2.0
// This rank's part of sharded parameters and of their optimizer's state, for sharded checkpoints.
#include <peal/autograd/core/error.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>
#include <peal/nn/tied_writes.h>

#include <string>
#include <unordered_map>
#include <utility>

namespace peal::nn {
namespace {

// Of several that have the same elements the first saves them.
bool another_replica(const ShardGroups& groups) {
  return groups.replicas && groups.replicas.rank() > 0;
}

}  // namespace

LocalState FullyShardedDataParallel::State::local_state(const std::shared_ptr<State>& state) {
  if (state->cuts) return no_local_state("[fsdp] ", "the model");
  // f(piece, range) of the parameter that is called so, or tied to one that is.
  const auto with_piece = [state](const std::string& key, const auto& f) {
    std::string name = key;
    for (const auto& [alias, first] : state->outline.tied) {
      if (alias == key) name = first;
    }
    return state->with_parameter(name + ".", [&](const FlatParameter& flat, std::size_t entry,
                                                 const ParameterSpec& parameter) {
      const Piece piece = piece_of(flat.plan(), flat.plan().entries[entry], parameter.shape.numel(),
                                   state->groups.shards.rank());
      f(flat.pieces()[entry].second, ElementRange{piece.first, piece.count});
    });
  };
  const auto save = [state, with_piece] {
    state->check_idle("saving");
    std::vector<LocalTensor> mine;
    for (const auto& [key, tensor] : state->module.state_dict()) {
      LocalTensor local{key, tensor.shape(), tensor};
      with_piece(key, [&](const Tensor& piece, const ElementRange& range) {
        local.elements = piece;
        local.begin = range.begin;
        local.saved_elsewhere = another_replica(state->groups);
      });
      local.trained_apart = state->is_ignored(key);
      mine.push_back(std::move(local));
    }
    return mine;
  };
  const auto want = [state, with_piece](const std::vector<SavedTensor>& saved) {
    state->check_idle("loading");
    check_fits(state->module.class_name(), state->module.state_dict(), saved);
    WantedRanges ranges = all_of(saved);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      with_piece(saved[i].name,
                 [&](const Tensor&, const ElementRange& range) { ranges[i] = range; });
    }
    return ranges;
  };
  // Empty pieces are written, too: their versions tell all ranks alike what is to be gathered.
  const auto load = [state, with_piece](const NamedTensors& pieces) {
    const NoGrad guard;
    std::unordered_map<std::string_view, Tensor> given;
    for (const auto& [key, tensor] : pieces) given.emplace(key, tensor);
    TiedWrites writes(state->module.class_name());
    for (const auto& [key, own] : state->module.state_dict()) {
      const auto found = given.find(key);
      if (found == given.end()) continue;
      const bool sharded =
          with_piece(key, [&, &key = key](const Tensor& piece, const ElementRange& range) {
            writes.write(key, piece, found->second.detach({range.count}, 0));
          });
      if (!sharded) writes.write(key, own, found->second);
    }
  };
  return {.save = save, .want = want, .load = load, .checked = true};
}

LocalState FullyShardedDataParallel::State::local_state(const std::shared_ptr<State>& state,
                                                        Optimizer& optimizer) {
  if (state->cuts) return no_local_state("[fsdp] ", "the optimizer");
  const auto save = [state, &optimizer] {
    std::vector<LocalTensor> mine;
    for (const auto& [key, tensor] : optimizer.local_state_dict()) {
      LocalTensor local{key, tensor.shape(), tensor};
      const bool found =
          tensor.dim() == 0 ||  // a number, the same everywhere
          state->with_parameter(key, [&](const FlatParameter& flat, std::size_t entry,
                                         const ParameterSpec& parameter) {
            const Shape piece = flat.pieces()[entry].second.shape();
            PEAL_CHECK(local.shape == piece, "[fsdp] saving ", local.key, ": of a piece ", piece,
                       " expected a state of that shape, ", "got ", local.shape);
            local.shape = parameter.shape;
            local.begin = piece_of(flat.plan(), flat.plan().entries[entry], parameter.shape.numel(),
                                   state->groups.shards.rank())
                              .first;
            local.saved_elsewhere = another_replica(state->groups);
          });
      PEAL_CHECK(found || state->is_of_ignored(key), "[fsdp] saving ", key,
                 ", which is of no parameter of the model; make the optimizer of "
                 "local_parameters()");
      local.trained_apart = !found;
      mine.push_back(std::move(local));
    }
    return mine;
  };
  const auto want = [state, &optimizer](const std::vector<SavedTensor>& saved) {
    WantedRanges ranges = all_of(saved);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const auto& [key, dtype, shape] = saved[i];
      state->with_parameter(
          key, [&, &key = key, &shape = shape](const FlatParameter& flat, std::size_t entry,
                                               const ParameterSpec& parameter) {
            const std::string_view what = std::string_view(key).substr(parameter.name.size() + 1);
            if (!optimizer.keeps_tensor(what)) return;
            PEAL_CHECK(shape == parameter.shape, "[fsdp] loading ", key, ": expected ",
                       parameter.shape, ", got ", shape);
            const Piece piece = piece_of(flat.plan(), flat.plan().entries[entry],
                                         parameter.shape.numel(), state->groups.shards.rank());
            ranges[i] = ElementRange{piece.first, piece.count};
          });
    }
    return ranges;
  };
  // A piece that is a whole parameter came in that one's shape.
  const auto load = [state, &optimizer](const NamedTensors& pieces) {
    NamedTensors mine = pieces;
    for (auto& [key, tensor] : mine) {
      if (tensor.dim() == 0) {
        const std::string_view what = std::string_view(key).substr(key.rfind('.') + 1);
        if (!optimizer.keeps_tensor(what)) continue;
      }
      state->with_parameter(
          key, [&tensor = tensor](const FlatParameter&, std::size_t, const ParameterSpec&) {
            tensor = tensor.detach({tensor.numel()}, 0);
          });
    }
    optimizer.load_state_dict(mine);
  };
  return {.save = save, .want = want, .load = load, .replaces = true};
}

}  // namespace peal::nn
