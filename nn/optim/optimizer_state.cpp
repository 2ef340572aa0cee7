// SPDX-License-Identifier: Apache-2.0
// What an optimizer saves, and what it takes up.
#include <peal/autograd/core/stateful.h>
#include <peal/nn/optim/optimizer.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace peal::nn {

NamedTensors Optimizer::group_state() const {
  NamedTensors result;
  const auto add = [&](std::string key, auto value) {
    result.emplace_back(std::move(key), Tensor::scalar(value, Device{}));
  };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = concat("groups.", g, ".");
    for (std::size_t k = 0; k < setting_names_.size(); ++k) {
      const double value = groups_[g].settings[k];
      if (k >= names_of_.settings.size() && value == 0) continue;
      add(prefix + std::string(setting_names_[k]), value);
    }
    if (groups_[g].initial_lr) add(prefix + "initial_lr", *groups_[g].initial_lr);
    add(prefix + "parameters", groups_[g].parameters);
  }
  return result;
}

// Nothing, where it has had no step.
NamedTensors Optimizer::state_of(std::size_t i) const {
  NamedTensors result;
  const State& state = states_[i];
  if (state.step == 0) return result;
  const std::string prefix = names_[i] + ".";
  result.emplace_back(prefix + "step", Tensor::scalar(state.step, Device{}));
  for (std::size_t k = 0; k < state.tensors.size(); ++k) {
    if (!state.tensors[k].defined()) continue;
    result.emplace_back(prefix + std::string(state_names_[k]), state.tensors[k]);
  }
  for (std::size_t k = 0; k < state.numbers.size(); ++k) {
    result.emplace_back(prefix + std::string(names_of_.numbers[k].first),
                        Tensor::scalar(state.numbers[k], Device{}));
  }
  if (state.master.defined()) result.emplace_back(prefix + "master", state.master);
  return result;
}

std::int64_t Optimizer::state_bytes(std::size_t i) const {
  const Tensor& parameter = parameters_[i];
  std::int64_t elements = is_low_precision(parameter.dtype()) ? parameter.numel() : 0;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    if (wants(i, k)) elements += state_shape(k, parameter.shape()).numel();
  }
  return elements * static_cast<std::int64_t>(size_of(computed_in(parameter.dtype())));
}

bool Optimizer::keeps_tensor(std::string_view state) const {
  return state == "master" ||
         std::find(state_names_.begin(), state_names_.end(), state) != state_names_.end();
}

NamedTensors Optimizer::state_dict() const {
  check_not_pieces(concat(name(), ": state_dict"), parameters_,
                   "take the wrapper's optimizer_state_dict(), on all ranks, or its "
                   "saved(optimizer) as a part of a checkpoint");
  return local_state_dict();
}

NamedTensors Optimizer::local_state_dict() const {
  NamedTensors result = group_state();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    for (auto& entry : state_of(i)) result.push_back(std::move(entry));
  }
  for (auto& entry : own_state()) result.push_back(std::move(entry));
  return result;
}

LocalState Optimizer::local_state() {
  LocalState all = whole_state([this] { return state_dict(); },
                               [this](const NamedTensors& state) { load_state_dict(state); });
  all.replaces = true;
  return all;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  StateReader reader(name(), state);
  std::vector<Group> groups = groups_;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string prefix = concat("groups.", g, ".");
    for (std::size_t k = 0; k < setting_names_.size(); ++k) {
      const std::string key = prefix + std::string(setting_names_[k]);
      if (k >= names_of_.settings.size()) {
        groups[g].settings[k] = reader.has(key) ? reader.number<double>(key) : 0;
      } else if (const Tensor value = reader.tensor(key, {}, DType::f64); value.defined()) {
        groups[g].settings[k] = value.item<double>();
      }
    }
    groups[g].initial_lr.reset();
    if (reader.has(prefix + "initial_lr")) {
      groups[g].initial_lr = reader.number<double>(prefix + "initial_lr");
    }
    const Tensor count = reader.tensor(prefix + "parameters", {}, DType::i64);
    if (count.defined() && count.item<std::int64_t>() != groups[g].parameters) {
      reader.fault(concat("wrong: group ", g, " has ", groups[g].parameters,
                          " parameters, the saved one ", count.item<std::int64_t>()));
    }
    try {
      check(groups[g].settings);
    } catch (const Error& error) {
      reader.fault(concat("wrong: group ", g, ": ", error.what()));
    }
  }
  std::vector<State> states(parameters_.size());
  const std::unordered_set<std::string> names(names_.begin(), names_.end());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string number = std::to_string(i);
    const bool by_number = !names.contains(number) && reader.has(number + ".step");
    const std::string prefix = (by_number ? number : names_[i]) + ".";
    if (!reader.has(prefix + "step")) continue;  // it had no step yet
    states[i].step = reader.number<std::int64_t>(prefix + "step");
    if (states[i].step < 1) reader.fault(concat("wrong: ", prefix, "step: expected at least 1"));
    const Tensor& parameter = parameters_[i];
    const auto take_copy = [&](std::string_view name, const Shape& shape) {
      const Tensor tensor =
          reader.tensor(prefix + std::string(name), shape, computed_in(parameter.dtype()));
      if (!tensor.defined() || is_elsewhere(i)) return Tensor();
      return tensor.to(parameter.device()).clone();
    };
    // Settings may have changed since the state was made, so what is there counts, if it is whole.
    const auto there = [&](std::string_view name) {
      return reader.has(prefix + std::string(name));
    };
    const bool any = std::any_of(state_names_.begin(), state_names_.end(), there);
    states[i].tensors.resize(state_names_.size());
    for (std::size_t k = 0; any && k < state_names_.size(); ++k) {
      if (k >= names_of_.states.size() && !there(state_names_[k])) continue;
      states[i].tensors[k] = take_copy(state_names_[k], state_shape(k, parameter.shape()));
    }
    for (const auto& [name, start] : names_of_.numbers) {
      states[i].numbers.push_back(reader.number<double>(prefix + std::string(name)));
    }
    if (is_low_precision(parameter.dtype())) {
      states[i].master = take_copy("master", parameter.shape());
    }
    if (is_elsewhere(i)) states[i] = {};  // it was looked at, as on the rank that keeps it
  }
  const std::function<void()> take_own = read_own_state(reader);
  reader.finish(
      " (was it saved with other parameters, or by names that these do not have? Names come with "
      "named_parameters())");
  groups_ = std::move(groups);
  states_ = std::move(states);
  if (take_own) take_own();
}

}  // namespace peal::nn
