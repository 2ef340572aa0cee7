// SPDX-License-Identifier: Apache-2.0
// Learning rates over time. A Schedule says the rate after n steps of the scheduler, from the rate
// that a group of the optimizer had at first; the names are PyTorch's, and so are the values. Any
// function will do:
//
//   LRScheduler scheduler(optimizer, warm_up(100, cosine_annealing_lr(1000)));
//   for (...) { ...; optimizer.step(); scheduler.step(); }
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace peal::nn {

using Schedule = std::function<double(double base_lr, std::int64_t step)>;

// Sets each group's rate at once and at each step, from its initial_lr: that of the constructor, or
// of the run that a checkpoint goes on with. REQUIRES: the optimizer outlives this.
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, Schedule schedule);
  void step() { set_steps(steps_ + 1); }
  // For a run that goes on: how many steps there were.
  void set_steps(std::int64_t steps);
  std::int64_t steps() const { return steps_; }
  // "steps"; the rates that schedules start from are the optimizer's to save. Loading sets the
  // rates, so the optimizer is loaded before.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  Optimizer& optimizer_;
  Schedule schedule_;
  std::int64_t steps_ = 0;
};

// Times gamma every step_size steps.
Schedule step_lr(std::int64_t step_size, double gamma = 0.1);
// Times gamma at each of these steps, which ascend.
Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma = 0.1);
// Half a cosine from the base rate to eta_min in t_max steps, and up again (Loshchilov and Hutter,
// "SGDR", 2016, section 3, without restarts).
Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min = 0);
// The factor goes from start to end in total steps in a straight line, and stays there.
Schedule linear_lr(double start_factor, double end_factor, std::int64_t total);
// From 1 / steps of what `then` begins with up to all of it, at step number steps - 1; `then`
// counts on from there.
Schedule warm_up(std::int64_t steps, Schedule then);

struct OneCycleOptions {
  double max_lr;
  std::int64_t total_steps;
  double pct_start = 0.3;  // the share of the steps that go up
  double div_factor = 25;  // it starts at max_lr / div_factor
  double final_div_factor = 1e4;
};
// Up and down again by cosines (Smith and Topin, "Super-convergence", 2017). The base rate does not
// count. Error past total_steps.
Schedule one_cycle_lr(const OneCycleOptions& options);

}  // namespace peal::nn
