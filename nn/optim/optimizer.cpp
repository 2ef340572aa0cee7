// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/choose.h>
#include <peal/nn/optim/optimizer.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace peal::nn {

void check_setting(std::string_view what, double value, double low, double high) {
  PEAL_CHECK(value >= low && value < high, what, ": expected a value from ", low, " to below ",
             high, ", got ", value);
}

Optimizer::Optimizer(std::string_view name, std::vector<std::string_view> setting_names,
                     std::vector<std::string_view> state_names)
    : name_(name), setting_names_(std::move(setting_names)), state_names_(std::move(state_names)) {}

Parameters::Parameters(const NamedTensors& named) {
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
}

void Optimizer::add_group(const Parameters& parameters, std::vector<double> settings) {
  check(settings);
  const std::vector<Tensor>& tensors = parameters.tensors;
  PEAL_CHECK(!tensors.empty(), name_, ": there are no parameters",
             groups_.empty() ? " (a module has those that add_parameter and add have registered)"
                             : concat(" in group ", groups_.size()));
  std::unordered_set<const TensorBody*> seen;
  for (const Tensor& parameter : parameters_) seen.insert(&parameter.body());
  std::unordered_set<std::string> names(names_.begin(), names_.end());
  const std::size_t before = parameters_.size();
  parameters_.insert(parameters_.end(), tensors.begin(), tensors.end());
  for (std::size_t i = before; i < parameters_.size(); ++i) {
    names_.push_back(parameters.names.empty() ? std::to_string(i) : parameters.names[i - before]);
  }
  const auto check_new = [&](std::size_t i) {
    PEAL_CHECK(parameters_[i].is_leaf() && is_floating(parameters_[i].dtype()), name_, ": ",
               called(i), " is not a floating leaf but the result of an operation, or of integers");
    PEAL_CHECK(seen.insert(&parameters_[i].body()).second, name_, ": ", called(i), " comes twice");
    PEAL_CHECK(names.insert(names_[i]).second, name_, ": ", called(i),
               ": another parameter has this name, too");
  };
  try {
    for (std::size_t i = before; i < parameters_.size(); ++i) check_new(i);
  } catch (...) {
    parameters_.resize(before);
    names_.resize(before);
    throw;
  }
  group_of_.resize(parameters_.size(), groups_.size());
  groups_.push_back({std::move(settings), static_cast<std::int64_t>(tensors.size()), std::nullopt});
  states_.resize(parameters_.size());
}

std::string Optimizer::called(std::size_t i) const {
  return concat("parameter ", names_[i], " of shape ", parameters_[i].shape());
}

// Whether others wrote the parameter, or agreed on its value, since the last step.
bool Optimizer::is_behind(const State& state, const Tensor& parameter) {
  if (!state.seen) return true;
  const StorageRef& storage = parameter.storage();
  return state.seen->version != storage->version() ||
         state.seen->broadcasts != storage->broadcasts() || state.seen->storage.lock() != storage;
}

// Brings the master up to date with what others wrote into the parameter.
void Optimizer::follow(State& state, const Tensor& parameter) {
  const Tensor& master = state.master;
  if (!master.defined()) return;
  if (!state.seen) {
    const Tensor wide = cast(parameter, DType::f32);
    master.copy_(where(eq(cast(master, parameter.dtype()), parameter), master, wide));
  } else if (is_behind(state, parameter)) {
    master.copy_(cast(parameter, DType::f32));
  }
}

void Optimizer::follow_all() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) follow(states_[i], parameters_[i]);
}

void Optimizer::note_versions() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!states_[i].master.defined()) continue;
    const StorageRef& storage = parameters_[i].storage();
    states_[i].seen = {storage, storage->version(), storage->broadcasts()};
  }
}

// What its settings want and is not there; whether that is any.
bool Optimizer::make_state(std::size_t i) {
  const Tensor& parameter = parameters_[i];
  State& state = states_[i];
  const std::size_t wanted = state_count(groups_[group_of_[i]].settings);
  const bool fresh = state.tensors.size() < wanted;
  while (state.tensors.size() < wanted) {
    state.tensors.push_back(
        Tensor::zeros(parameter.shape(), computed_in(parameter.dtype()), parameter.device()));
  }
  if (is_low_precision(parameter.dtype()) && !state.master.defined()) {
    state.master = cast(parameter, DType::f32);
  }
  return fresh;
}

// Of the parameters that have a gradient, in the order of their first ones; each counts a step.
std::vector<Optimizer::List> Optimizer::lists() {
  std::vector<List> lists;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    grad = cast(grad, parameter.dtype());  // it may be kept in fewer bits (MixedPrecision)
    State& state = states_[i];
    const bool fresh = make_state(i);
    ++state.step;
    const Kind kind{group_of_[i], state.step, fresh, parameter.dtype(), parameter.device()};
    std::size_t at = 0;
    while (at < lists.size() && lists[at].kind != kind) ++at;
    if (at == lists.size()) lists.push_back({kind, {}, {}});
    const std::size_t wanted = state_count(groups_[kind.group].settings);
    const auto kept = [&](std::size_t k) { return k < wanted ? state.tensors[k] : Tensor(); };
    const bool low = is_low_precision(parameter.dtype());
    lists[at].numbers.push_back(i);
    lists[at].steps.push_back(
        {low ? state.master : parameter, grad, kept(0), kept(1), low ? parameter : Tensor()});
  }
  return lists;
}

void Optimizer::step() {
  const NoGrad guard;
  if (Graph* const graph = Graph::capturing()) return capture(*graph);
  // Before the first write, and remembered after the last: parameters may share a storage.
  follow_all();
  for (const List& list : lists()) {
    update({list.kind.step, list.kind.fresh, list.steps, {}}, groups_[list.kind.group].settings);
  }
  note_versions();
}

void Optimizer::zero_grad() {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

const Optimizer::Group& Optimizer::at(std::size_t group) const {
  PEAL_CHECK(group < groups_.size(), name_, ": there is no group ", group, ", but ",
             groups_.size());
  return groups_[group];
}
Optimizer::Group& Optimizer::at(std::size_t group) {
  return const_cast<Group&>(std::as_const(*this).at(group));
}

std::size_t Optimizer::place(std::string_view setting) const {
  const auto found = std::find(setting_names_.begin(), setting_names_.end(), setting);
  if (found == setting_names_.end()) {
    std::string names;
    for (const std::string_view name : setting_names_) names += concat(" ", name);
    PEAL_CHECK(false, name_, ": there is no setting '", setting, "', but:", names);
  }
  return static_cast<std::size_t>(found - setting_names_.begin());
}

double Optimizer::setting(std::string_view name, std::size_t group) const {
  return at(group).settings[place(name)];
}

void Optimizer::set_setting(std::string_view name, double value, std::size_t group) {
  Group& here = at(group);
  std::vector<double> settings = here.settings;
  settings[place(name)] = value;
  check(settings);
  here.settings = std::move(settings);
}

void Optimizer::set_lr(double lr) {
  for (std::size_t group = 0; group < groups_.size(); ++group) set_lr(lr, group);
}

double Optimizer::initial_lr(std::size_t group) {
  Group& here = at(group);
  here.initial_lr = base_lr(group);
  return *here.initial_lr;
}

double Optimizer::base_lr(std::size_t group) const {
  const Group& here = at(group);
  return here.initial_lr.value_or(here.settings[0]);
}

void Optimizer::set_base_lr(double lr, std::size_t group) {
  const double before = base_lr(group), now = this->lr(group);
  // From 0 there is no proportion; a schedule whose base was 0 says its rates itself.
  set_lr(now == before ? lr : before == 0 ? now : now * (lr / before), group);
  Group& here = at(group);
  if (here.initial_lr) here.initial_lr = lr;
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  const auto add = [&](std::string key, auto value) {
    result.emplace_back(std::move(key), Tensor::scalar(value, Device{}));
  };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = concat("groups.", g, ".");
    for (std::size_t k = 0; k < setting_names_.size(); ++k) {
      add(prefix + std::string(setting_names_[k]), groups_[g].settings[k]);
    }
    if (groups_[g].initial_lr) add(prefix + "initial_lr", *groups_[g].initial_lr);
    add(prefix + "parameters", groups_[g].parameters);
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (state.step == 0) continue;
    const std::string prefix = names_[i] + ".";
    add(prefix + "step", state.step);
    for (std::size_t k = 0; k < state.tensors.size(); ++k) {
      result.emplace_back(prefix + std::string(state_names_[k]), state.tensors[k]);
    }
    if (state.master.defined()) result.emplace_back(prefix + "master", state.master);
  }
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  StateReader reader(name_, state);
  std::vector<Group> groups = groups_;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string prefix = concat("groups.", g, ".");
    for (std::size_t k = 0; k < setting_names_.size(); ++k) {
      const Tensor value = reader.tensor(prefix + std::string(setting_names_[k]), {}, DType::f64);
      if (value.defined()) groups[g].settings[k] = value.item<double>();
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
    const auto take_copy = [&](std::string_view name) {
      const Tensor tensor = reader.tensor(prefix + std::string(name), parameters_[i].shape(),
                                          computed_in(parameters_[i].dtype()));
      return tensor.defined() ? tensor.to(parameters_[i].device()).clone() : tensor;
    };
    // Settings may have changed since the state was made, so what is there counts, if it is whole.
    const bool any =
        std::any_of(state_names_.begin(), state_names_.end(),
                    [&](std::string_view name) { return reader.has(prefix + std::string(name)); });
    for (std::size_t k = 0; any && k < state_names_.size(); ++k) {
      states[i].tensors.push_back(take_copy(state_names_[k]));
    }
    if (is_low_precision(parameters_[i].dtype())) states[i].master = take_copy("master");
  }
  reader.finish(
      " (was it saved with other parameters, or by names that these do not have? Names come with "
      "named_parameters())");
  groups_ = std::move(groups);
  states_ = std::move(states);
}

}  // namespace peal::nn
