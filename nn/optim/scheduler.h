// SPDX-License-Identifier: Apache-2.0
// Learning rates over time. A Schedule says the rate after n steps of the scheduler, from the rate
// that a group of the optimizer had at first (schedules.h has PyTorch's, schedulers.h has them
// under the names of PyTorch's classes). Any function will do:
//
//   LRScheduler scheduler(optimizer, warm_up(100, cosine_annealing_lr(1000)));
//   for (...) { ...; optimizer.step(); scheduler.step(); }
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>
#include <peal/nn/optim/schedules.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

// Sets each group's rate at once and at each step, from its initial_lr: that of the constructor, or
// of the run that a checkpoint goes on with. REQUIRES: the optimizer outlives this.
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, Schedule schedule);
  // One for each group, in order; Error for another number of them.
  LRScheduler(Optimizer& optimizer, std::vector<Schedule> by_group);
  // Another setting of all groups ("momentum", "beta1", "weight_decay") goes along from now on.
  void also(std::string setting, std::function<double(std::int64_t step)> value);

  void step() { set_steps(steps_ + 1); }
  // For a run that goes on: how many steps there were.
  void set_steps(std::int64_t steps);
  std::int64_t steps() const { return steps_; }
  // The last that there is a rate for, of a schedule that ends (OneCycleLR).
  const std::optional<std::int64_t>& last_step() const { return last_step_; }
  // The groups' rates.
  std::vector<double> get_last_lr() const;
  // "steps"; the rates that schedules start from are the optimizer's to save. Loading sets the
  // rates, so the optimizer is loaded before.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 protected:
  void ends_at(std::int64_t step) { last_step_ = step; }

 private:
  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;  // by group, or one for all
  std::vector<std::pair<std::string, std::function<double(std::int64_t)>>> others_;
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> last_step_;
};

}  // namespace peal::nn
