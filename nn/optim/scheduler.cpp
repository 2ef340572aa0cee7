// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stateful.h>
#include <peal/nn/optim/scheduler.h>

#include <utility>

namespace peal::nn {

LRScheduler::LRScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedules_{std::move(schedule)} {
  PEAL_CHECK(schedules_[0] != nullptr, "LRScheduler: there is no schedule");
  set_steps(0);
}

LRScheduler::LRScheduler(Optimizer& optimizer, std::vector<Schedule> by_group)
    : optimizer_(optimizer), schedules_(std::move(by_group)) {
  PEAL_CHECK(schedules_.size() == optimizer.group_count(), "LRScheduler: ", schedules_.size(),
             " schedules came for ", optimizer.group_count(), " groups");
  for (const Schedule& each : schedules_) {
    PEAL_CHECK(each != nullptr, "LRScheduler: there is a schedule without a function");
  }
  set_steps(0);
}

void LRScheduler::also(std::string setting, std::function<double(std::int64_t)> value) {
  PEAL_CHECK(value != nullptr, "LRScheduler: there is no schedule for ", setting);
  optimizer_.setting(setting);  // whether there is one
  others_.emplace_back(std::move(setting), std::move(value));
  set_steps(steps_);
}

void LRScheduler::set_steps(std::int64_t steps) {
  PEAL_CHECK(steps >= 0, "LRScheduler: steps count from 0, got ", steps);
  PEAL_CHECK(schedules_.size() == 1 || schedules_.size() == optimizer_.group_count(),
             "LRScheduler: it was made for ", schedules_.size(), " groups, and the optimizer has ",
             optimizer_.group_count(), " now; add groups before the schedule is made");
  std::vector<double> rates, others;
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group) {
    const Schedule& schedule = schedules_[schedules_.size() == 1 ? 0 : group];
    rates.push_back(schedule(optimizer_.initial_lr(group), steps));
  }
  for (const auto& [setting, value] : others_) others.push_back(value(steps));
  for (std::size_t group = 0; group < rates.size(); ++group) {
    optimizer_.set_lr(rates[group], group);
    for (std::size_t k = 0; k < others.size(); ++k) {
      optimizer_.set_setting(others_[k].first, others[k], group);
    }
  }
  steps_ = steps;
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group) {
    rates.push_back(optimizer_.lr(group));
  }
  return rates;
}

NamedTensors LRScheduler::state_dict() const {
  return {{"steps", Tensor::scalar(steps_, Device{})}};
}

void LRScheduler::load_state_dict(const NamedTensors& state) {
  StateReader reader("LRScheduler", state);
  const auto steps = reader.number<std::int64_t>("steps");
  if (steps < 0) reader.fault(concat("wrong: steps: expected at least 0, got ", steps));
  reader.finish();
  set_steps(steps);
}

}  // namespace peal::nn
