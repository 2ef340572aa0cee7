// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/local_state.h>

#include <map>
#include <unordered_map>
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
  std::unordered_map<std::string_view, const SavedTensor*> given;
  for (const SavedTensor& tensor : saved) given.emplace(tensor.name, &tensor);
  using Place = std::pair<const Storage*, std::int64_t>;
  const auto place_of = [](const Tensor& tensor) {
    return Place{tensor.storage().get(), tensor.body().at};
  };
  std::map<Place, Shape> reached;  // by some name: the other names of a tied tensor need not come
  for (const auto& [key, tensor] : own) {
    if (given.contains(key) && tensor.numel() > 0) {
      reached.emplace(place_of(tensor), tensor.shape());
    }
  }
  std::vector<std::string> faults;
  for (const auto& [key, tensor] : own) {
    const auto found = given.find(key);
    if (found == given.end()) {
      const auto tied = reached.find(place_of(tensor));
      if (tensor.numel() > 0 && tied != reached.end() && tied->second == tensor.shape()) continue;
      faults.push_back(concat("missing: ", key, " ", tensor.dtype(), " ", tensor.shape()));
      continue;
    }
    const SavedTensor& from = *found->second;
    if (from.shape != tensor.shape()) {
      faults.push_back(
          concat("wrong shape: ", key, ": expected ", tensor.shape(), ", got ", from.shape));
    } else if (from.dtype != tensor.dtype() &&
               !(is_floating(from.dtype) && is_floating(tensor.dtype()))) {
      faults.push_back(
          concat("wrong type: ", key, ": expected ", tensor.dtype(), ", got ", from.dtype));
    }
    given.erase(found);
  }
  for (const SavedTensor& tensor : saved) {
    if (!given.contains(tensor.name)) continue;
    faults.push_back(concat("unexpected: ", tensor.name, " ", tensor.dtype, " ", tensor.shape));
  }
  if (faults.empty()) return;
  std::string message = concat("load_state_dict: ", who, ": ", faults.size(),
                               faults.size() == 1 ? " difference" : " differences");
  for (std::size_t i = 0; i < faults.size() && i < most_listed; ++i) message += "\n  " + faults[i];
  if (faults.size() > most_listed)
    message += concat("\n  and ", faults.size() - most_listed, " more");
  fail(std::move(message));
}

}  // namespace peal::nn
