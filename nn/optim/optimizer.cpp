// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/optim/optimizer.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace peal::nn {

void check_setting(std::string_view what, double value, double low, double high) {
  PEAL_CHECK(value >= low && value < high, what, ": expected a value from ", low, " to below ",
             high, ", got ", value);
}

void check_not_pieces(std::string_view who, std::span<const Tensor> parameters,
                      std::string_view instead) {
  for (const Tensor& parameter : parameters) {
    PEAL_CHECK(!parameter.storage()->is_piece(), who, ": expected whole parameters, got one of [",
               parameter.numel(),
               "], this rank's piece of a sharded parameter, so that the ranks' ",
               "results would differ; ", instead);
  }
}

Optimizer::Optimizer(Names names) : names_of_(std::move(names)), state_names_(names_of_.states) {
  for (const Setting& setting : names_of_.settings) setting_names_.push_back(setting.name);
  for (const std::string_view flag : names_of_.flags) {
    if (flag == "maximize") maximize_ = setting_names_.size();
    setting_names_.push_back(flag);
  }
  const auto& at_times = names_of_.states_at_times;
  state_names_.insert(state_names_.end(), at_times.begin(), at_times.end());
}

void Optimizer::check(std::span<const double> settings) const {
  const std::vector<Setting>& numbers = names_of_.settings;
  for (std::size_t k = 0; k < settings.size(); ++k) {
    const double value = settings[k];
    if (k < numbers.size()) {
      const auto& [what, low, high] = numbers[k];
      check_setting(concat(name(), ": ", what), value, low, high);
    } else {
      PEAL_CHECK(value == 0 || value == 1, name(), ": ", setting_names_[k],
                 ": expected 0 or 1, got ", value);
    }
  }
}

bool Optimizer::wants_state(std::size_t, const Shape&, std::span<const double>) const {
  return true;
}
Shape Optimizer::state_shape(std::size_t, const Shape& parameter) const { return parameter; }
double Optimizer::state_start(std::size_t, std::span<const double>) const { return 0; }
void Optimizer::advance(std::span<double>, const Now&) const {}

Parameters::Parameters(const NamedTensors& named) {
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
}

constexpr const char* instead_of_pieces =
    "take an optimizer that changes each element by itself, AdamW for example, or DDP with a "
    "ZeroRedundancyOptimizer";

void Optimizer::add_group(const Parameters& parameters, std::vector<double> settings) {
  check(settings);
  const std::vector<Tensor>& tensors = parameters.tensors;
  if (names_of_.needs_whole) {
    check_not_pieces(name(), tensors, instead_of_pieces);
  }
  PEAL_CHECK(!tensors.empty() || parameters.part_of_model, name(), ": there are no parameters",
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
    PEAL_CHECK(parameters_[i].is_leaf() && is_floating(parameters_[i].dtype()), name(), ": ",
               called(i), " is not a floating leaf but the result of an operation, or of integers");
    PEAL_CHECK(seen.insert(&parameters_[i].body()).second, name(), ": ", called(i), " comes twice");
    PEAL_CHECK(names.insert(names_[i]).second, name(), ": ", called(i),
               ": another parameter has this name, too");
  };
  try {
    for (std::size_t i = before; i < parameters_.size(); ++i) check_new(i);
  } catch (...) {
    parameters_.resize(before);
    names_.resize(before);
    throw;
  }
  part_of_model_ = part_of_model_ || parameters.part_of_model;
  group_of_.resize(parameters_.size(), groups_.size());
  groups_.push_back({std::move(settings), static_cast<std::int64_t>(tensors.size()), std::nullopt});
  states_.resize(parameters_.size());
}

void Optimizer::exchange_parameters(const std::vector<Tensor>& others) {
  PEAL_CHECK(others.size() == parameters_.size(), name(), ": exchange_parameters: expected ",
             parameters_.size(), " parameters, got ", others.size());
  for (const State& state : states_) {
    PEAL_CHECK(state.step == 0, name(), ": exchange_parameters after a step, of which there is ",
               "state; exchange them before the first");
  }
  if (names_of_.needs_whole) {
    check_not_pieces(name(), others, instead_of_pieces);
  }
  std::unordered_set<const TensorBody*> seen;
  for (std::size_t i = 0; i < others.size(); ++i) {
    PEAL_CHECK(others[i].is_leaf() && is_floating(others[i].dtype()), name(), ": what replaces ",
               called(i), " is not a floating leaf");
    PEAL_CHECK(seen.insert(&others[i].body()).second, name(), ": what replaces ", called(i),
               " comes twice");
  }
  parameters_ = others;
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
  // Tensors that share storage share its version: who wrote may have written another.
  const bool shared = state.seen && parameter.storage()->bytes() > parameter.view().bytes() &&
                      state.seen->broadcasts == parameter.storage()->broadcasts() &&
                      state.seen->storage.lock() == parameter.storage();
  if (!state.seen || (shared && is_behind(state, parameter))) {
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

bool Optimizer::wants(std::size_t i, std::size_t k) const {
  return wants_state(k, parameters_[i].shape(), groups_[group_of_[i]].settings);
}

bool Optimizer::maximizes(std::size_t group) const {
  return maximize_ && groups_[group].settings[*maximize_] != 0;
}

Optimizer::Wanted Optimizer::wanted_state(std::size_t i) const {
  Wanted wanted;
  const std::vector<Tensor>& there = states_[i].tensors;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    if (!wants(i, k)) continue;
    const bool made = k < there.size() && there[k].defined();
    if (made) wanted.tensors.at(wanted.count) = there[k];
    wanted.whole = wanted.whole && made;
    ++wanted.count;
  }
  return wanted;
}

// What its settings want and is not there; whether that is any.
bool Optimizer::make_state(std::size_t i) {
  const Tensor& parameter = parameters_[i];
  State& state = states_[i];
  state.tensors.resize(state_names_.size());
  bool fresh = false;
  for (std::size_t k = 0; k < state_names_.size(); ++k) {
    if (state.tensors[k].defined() || !wants(i, k)) continue;
    state.tensors[k] = Tensor::zeros(state_shape(k, parameter.shape()),
                                     computed_in(parameter.dtype()), parameter.device());
    const double start = state_start(k, groups_[group_of_[i]].settings);
    if (start != 0) fill_(state.tensors[k], start);
    fresh = true;
  }
  if (state.step == 0) {
    state.numbers.clear();
    for (const auto& [name, start] : names_of_.numbers) state.numbers.push_back(start);
  }
  if (is_low_precision(parameter.dtype()) && !state.master.defined()) {
    state.master = cast(parameter, DType::f32);
  }
  return fresh;
}

Tensor Optimizer::gradient(std::size_t i) const {
  if (is_elsewhere(i)) return {};
  Tensor grad = parameters_[i].grad();
  if (!grad.defined()) return grad;
  grad = cast(grad, parameters_[i].dtype());  // it may be kept in fewer bits (MixedPrecision)
  return maximizes(group_of_[i]) ? -grad : grad;
}

// Of the parameters that have a gradient, in the order of their first ones; each counts a step.
std::vector<Optimizer::List> Optimizer::lists() {
  std::vector<List> lists;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor grad = gradient(i);
    if (!grad.defined()) continue;
    State& state = states_[i];
    const bool fresh = make_state(i);
    ++state.step;
    advance(state.numbers, {state.step, groups_[group_of_[i]].settings, state.numbers});
    const Kind kind{group_of_[i],           state.step,         fresh,
                    parameter.dtype(),      parameter.device(), state.numbers,
                    maximizes(group_of_[i])};
    std::size_t at = 0;
    while (at < lists.size() && lists[at].kind != kind) ++at;
    if (at == lists.size()) lists.push_back({kind, {}, {}});
    const auto [kept, count, whole] = wanted_state(i);
    const bool low = is_low_precision(parameter.dtype());
    lists[at].numbers.push_back(i);
    lists[at].steps.push_back({low ? state.master : parameter, grad, kept[0], kept[1],
                               low ? parameter : Tensor(), kept[2]});
  }
  return lists;
}

void Optimizer::step() {
  const NoGrad guard;
  if (Graph* const graph = Graph::capturing()) return capture(*graph);
  // Before the first write, and remembered after the last: parameters may share a storage.
  follow_all();
  for (const List& list : lists()) {
    update({list.kind.step, list.kind.fresh, list.steps, list.kind.numbers, {}},
           groups_[list.kind.group].settings);
  }
  note_versions();
}

Tensor Optimizer::step(const std::function<Tensor()>& closure) {
  PEAL_CHECK(closure != nullptr, name(), ": step: there is no closure");
  const GradMode guard(true);
  const Tensor loss = closure();
  step();
  return loss;
}

void Optimizer::zero_grad() {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

const Optimizer::Group& Optimizer::at(std::size_t group) const {
  PEAL_CHECK(group < groups_.size(), name(), ": there is no group ", group, ", but ",
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
    PEAL_CHECK(false, name(), ": there is no setting '", setting, "', but:", names);
  }
  return static_cast<std::size_t>(found - setting_names_.begin());
}

bool Optimizer::has_setting(std::string_view name) const {
  return std::find(setting_names_.begin(), setting_names_.end(), name) != setting_names_.end();
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

}  // namespace peal::nn
