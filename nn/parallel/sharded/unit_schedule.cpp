// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/sharded/unit_schedule.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace peal::nn {

using Act = UnitAction::What;

UnitSchedule::UnitSchedule(std::vector<Unit> units, const ScheduleOptions& options)
    : options_(options) {
  for (const Unit& unit : units) units_.push_back({unit, false});
}

void UnitSchedule::gather(int unit, UnitActions& actions) {
  if (at(unit).live) return;
  at(unit).live = true;
  actions.push_back({Act::gather, unit});
}

void UnitSchedule::free(int unit, UnitActions& actions) {
  if (!at(unit).live) return;
  at(unit).live = false;
  actions.push_back({Act::free, unit});
}

void UnitSchedule::settle(UnitActions& actions) {
  if (reducing_ >= 0) actions.push_back({Act::settle, reducing_});
  reducing_ = -1;
}

// A unit that is called outside of the model's forward is gathered alone.
UnitActions UnitSchedule::before_forward(int unit, bool grads) {
  UnitActions actions;
  if (unit == 0) {
    forward_ = true;
    grads_ = grads;
    next_forward_ = 0;
    order_.clear();
    if (grads) ended_.clear();
  }
  gather(unit, actions);
  if (forward_) {
    order_.push_back(unit);
    const std::size_t here = next_forward_++;
    const bool expected = here + 1 < known_.size() && known_[here] == unit;
    if (options_.forward_prefetch && expected) gather(known_[here + 1], actions);
  }
  actions.push_back({Act::use, unit});
  return actions;
}

UnitActions UnitSchedule::after_forward(int unit, bool wants) {
  UnitActions actions;
  const bool grads = forward_ && grads_;
  if (grads && wants) ended_.push_back(unit);
  if (!grads || (unit != 0 && options_.reshard_after_forward)) free(unit, actions);
  if (unit != 0) return actions;
  forward_ = false;
  known_ = order_;
  // What was gathered for a call that did not come.
  for (int other = 1; other < static_cast<int>(units_.size()); ++other) {
    if (!grads || options_.reshard_after_forward) free(other, actions);
  }
  return actions;
}

UnitActions UnitSchedule::begin_backward() {
  backward_.assign(ended_.rbegin(), ended_.rend());
  recomputed_.clear();
  next_backward_ = 0;
  return {};
}

UnitActions UnitSchedule::before_recompute(int unit) {
  UnitActions actions;
  for (const int other : recomputed_) {
    if (other != 0 && other != unit && options_.reshard_after_forward) free(other, actions);
  }
  recomputed_.clear();
  gather(unit, actions);
  actions.push_back({Act::use, unit});
  return actions;
}

UnitActions UnitSchedule::before_backward(int unit) {
  UnitActions actions;
  recomputed_.clear();
  gather(unit, actions);
  const auto from = backward_.begin() + static_cast<std::ptrdiff_t>(next_backward_);
  const auto here = std::find(from, backward_.end(), unit);
  if (here != backward_.end()) {
    next_backward_ = static_cast<std::size_t>(here - backward_.begin()) + 1;
    const bool more = next_backward_ < backward_.size();
    if (options_.backward_prefetch && more) gather(backward_[next_backward_], actions);
  }
  actions.push_back({Act::use, unit});
  return actions;
}

UnitActions UnitSchedule::after_backward(int unit) {
  UnitActions actions;
  if (unit != 0) free(unit, actions);
  return actions;
}

UnitActions UnitSchedule::complete(int unit, bool reduces) {
  UnitActions actions;
  if (unit != 0 && !at(unit).frozen) free(unit, actions);
  if (!reduces) return actions;
  settle(actions);
  actions.push_back({Act::reduce, unit});
  reducing_ = unit;
  return actions;
}

UnitActions UnitSchedule::end_backward() {
  UnitActions actions;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) free(unit, actions);
  settle(actions);
  return actions;
}

UnitActions UnitSchedule::drop(int unit) {
  UnitActions actions;
  free(unit, actions);
  return actions;
}

UnitActions plan_step(const std::vector<UnitSchedule::Unit>& units, const ScheduleOptions& options,
                      int steps_before) {
  UnitSchedule schedule(units, options);
  const int last = static_cast<int>(units.size()) - 1;
  UnitActions step;
  const auto then = [&](const UnitActions& actions) {
    step.insert(step.end(), actions.begin(), actions.end());
  };
  for (int k = 0; k <= steps_before; ++k) {
    step.clear();
    then(schedule.before_forward(0, true));
    for (int unit = 1; unit <= last; ++unit) {
      then(schedule.before_forward(unit, true));
      then(schedule.after_forward(unit, true));
    }
    then(schedule.after_forward(0, true));
    then(schedule.begin_backward());
    then(schedule.before_backward(0));
    for (int unit = last; unit >= 0; --unit) {
      if (unit != 0) then(schedule.before_backward(unit));
      if (unit != 0) then(schedule.after_backward(unit));
      if (units[static_cast<std::size_t>(unit)].trained) then(schedule.complete(unit, true));
    }
    then(schedule.end_backward());
  }
  return step;
}

std::string fault_in(std::span<const UnitAction> step, const std::vector<UnitSchedule::Unit>& units,
                     int most) {
  std::vector<bool> live(units.size(), false), reduced(units.size(), false);
  std::vector<int> in_flight;
  for (const auto& [what, unit] : step) {
    const auto u = static_cast<std::size_t>(unit);
    if (u >= units.size()) return concat("there is no unit ", unit);
    if (what == Act::gather) {
      if (live[u]) return concat("unit ", unit, " is gathered twice");
      live[u] = true;
      const auto there = std::count(live.begin() + 1, live.end(), true);
      if (there > most) return concat(there, " units are there when unit ", unit, " is gathered");
    } else if (what == Act::use) {
      if (!live[u]) return concat("unit ", unit, " is used and not there");
    } else if (what == Act::free) {
      if (!live[u]) return concat("unit ", unit, " is freed and not there");
      live[u] = false;
    } else if (what == Act::reduce) {
      if (reduced[u]) return concat("unit ", unit, " is reduced twice");
      if (!units[u].trained) return concat("unit ", unit, " is frozen and reduced");
      if (!in_flight.empty()) return concat("unit ", in_flight[0], " is reduced beside ", unit);
      reduced[u] = true;
      in_flight.push_back(unit);
    } else {
      if (in_flight != std::vector<int>{unit}) return concat("unit ", unit, " is not in flight");
      in_flight.clear();
    }
  }
  if (!in_flight.empty()) return concat("the reduction of unit ", in_flight[0], " has no end");
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (live[u]) return concat("unit ", u, " is left there");
    if (units[u].trained && !reduced[u]) return concat("unit ", u, " is not reduced");
  }
  return {};
}

std::string describe(std::span<const UnitAction> actions) {
  constexpr std::array<std::string_view, 5> words{"gather", "use", "free", "reduce", "settle"};
  std::string text;
  for (const auto& [what, unit] : actions) {
    text += concat(text.empty() ? "" : ", ", words[static_cast<std::size_t>(what)], " ", unit);
  }
  return text;
}

}  // namespace peal::nn
