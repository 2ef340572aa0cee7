// SPDX-License-Identifier: Apache-2.0
// Schedules: the rate after n steps as a pure function of the rate at first and n. The names are
// PyTorch's, and so are the values. They are put together by warm_up, sequential and chained.
// Thread safety: values; those that call functions of yours, as of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace peal::nn {

using Schedule = std::function<double(double base_lr, std::int64_t step)>;

// Times gamma every step_size steps.
Schedule step_lr(std::int64_t step_size, double gamma = 0.1);
// Times gamma at each of these steps, which ascend.
Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma = 0.1);
// Times gamma at every step.
Schedule exponential_lr(double gamma);
// Times factor for the first total steps.
Schedule constant_lr(double factor = 1.0 / 3, std::int64_t total = 5);
// The factor goes from start to end in total steps in a straight line, and stays there.
Schedule linear_lr(double start_factor, double end_factor, std::int64_t total);
// Times (1 - step / total)^power, and 0 from there on.
Schedule polynomial_lr(std::int64_t total = 5, double power = 1);
// Half a cosine from the base rate to eta_min in t_max steps, and up again (Loshchilov and Hutter,
// "SGDR", 2016, section 3, without restarts).
Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min = 0);
// Half a cosine down in t_0 steps, then from the top in t_0 t_mult, and so on (SGDR).
Schedule cosine_annealing_warm_restarts(std::int64_t t_0, std::int64_t t_mult = 1,
                                        double eta_min = 0);
// Up to the base rate in a straight line, at step number steps - 1, then with one over the root of
// the step (Vaswani et al., "Attention is all you need", 2017, section 5.3).
Schedule inverse_sqrt_lr(std::int64_t warm_up_steps);
// Times factor(step).
Schedule lambda_lr(std::function<double(std::int64_t step)> factor);
// Times factor(1) factor(2) ... factor(step).
Schedule multiplicative_lr(std::function<double(std::int64_t step)> factor);

// From 1 / steps of what `then` begins with up to all of it, at step number steps - 1; `then`
// counts on from there.
Schedule warm_up(std::int64_t steps, Schedule then);
// The first one, from the first milestone on the second, and so on; each counts from 0 where it
// begins. Milestones ascend, one fewer than schedules.
Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones);
// Each begins with what those before it make of the base rate: their factors are multiplied.
Schedule chained(std::vector<Schedule> schedules);

struct OneCycleOptions {
  double max_lr;
  std::int64_t total_steps;
  double pct_start = 0.3;  // the share of the steps that go up
  double div_factor = 25;  // it starts at max_lr / div_factor
  double final_div_factor = 1e4;
  bool three_phase = false;  // down to the start as long as up, then on
  bool linear = false;       // straight lines instead of cosines
  // For OneCycleLR: momentum goes the other way.
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
};
// Up and down again by cosines (Smith and Topin, "Super-convergence", 2017). The base rate does not
// count. Error past total_steps.
Schedule one_cycle_lr(const OneCycleOptions& options);
// The momentum that goes with it.
std::function<double(std::int64_t step)> one_cycle_momentum(const OneCycleOptions& options);

enum class Cycle : std::uint8_t {
  triangular,
  triangular2,  // half as high each time
  exp_range,    // times gamma at every step
};
struct CyclicOptions {
  double base_lr, max_lr;
  std::int64_t step_size_up = 2000;
  std::int64_t step_size_down = 0;  // 0: as up
  Cycle mode = Cycle::triangular;
  double gamma = 1;
  // For CyclicLR: momentum goes the other way.
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
};
// Up and down in straight lines, again and again (Smith, "Cyclical learning rates", 2015). The
// base rate does not count.
Schedule cyclic_lr(const CyclicOptions& options);
std::function<double(std::int64_t step)> cyclic_momentum(const CyclicOptions& options);

}  // namespace peal::nn
