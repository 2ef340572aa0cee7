// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/local_state.h>
#include <peal/nn/module_keys.h>

#include <utility>

namespace peal::nn {
namespace {

constexpr std::size_t most_listed = 8;

std::vector<LocalTensor> everywhere(const NamedTensors& state) {
  std::vector<LocalTensor> all;
  for (const auto& [key, tensor] : state) all.push_back({key, tensor.shape(), tensor});
  return all;
}

}  // namespace

NamedTensors taken_over(const NamedTensors& own, const NamedTensors& given) {
  std::unordered_map<std::string_view, const Tensor*> mine;
  for (const auto& [key, tensor] : own) mine.emplace(key, &tensor);
  NamedTensors all = given;
  for (auto& [key, tensor] : all) {
    const auto found = mine.find(key);
    if (found != mine.end() && take_over(*found->second, tensor)) tensor = *found->second;
  }
  return all;
}

void check_no_pieces(std::string_view who, const NamedTensors& state) {
  for (const auto& [key, tensor] : state) {
    PEAL_CHECK(!tensor.defined() || !tensor.storage()->is_piece(), who, ": ", key, " ",
               tensor.shape(),
               " is this rank's piece of a tensor-parallel model, and the other ranks' would be "
               "lost; save state_dict() or saved() of what parallelize_module() returned");
  }
}

WantedRanges all_of(const std::vector<SavedTensor>& saved) {
  WantedRanges ranges;
  for (const SavedTensor& tensor : saved) ranges.push_back(ElementRange{0, tensor.shape.numel()});
  return ranges;
}

LocalState whole_state(std::function<NamedTensors()> save,
                       std::function<void(const NamedTensors&)> load) {
  return {[save = std::move(save)] { return everywhere(save()); }, all_of, std::move(load)};
}

LocalState whole_model_state(std::string who, std::function<NamedTensors()> save,
                             std::function<void(const NamedTensors&)> load) {
  return {[who, save] {
            const NamedTensors state = save();
            check_no_pieces(who, state);
            return everywhere(state);
          },
          [who = std::move(who), save](const std::vector<SavedTensor>& saved) {
            check_fits(who, save(), saved);
            return all_of(saved);
          },
          load ? [save = std::move(save),
                  load](const NamedTensors& pieces) { load(taken_over(save(), pieces)); }
               : std::move(load),
          true};
}

void check_fits(std::string_view who, const NamedTensors& own,
                const std::vector<SavedTensor>& saved) {
  compare_keys(who, own, saved, true, most_listed);
}

}  // namespace peal::nn
