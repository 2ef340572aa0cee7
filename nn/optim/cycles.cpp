// SPDX-License-Identifier: Apache-2.0
// Schedules that go up and down, with their momentum (schedules.h).
#include <peal/autograd/core/error.h>
#include <peal/nn/optim/schedules.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace peal::nn {
namespace {

// The ends of one stretch of a cycle: the last step, and what rate and momentum are there.
struct Turn {
  double step, rate, momentum;
};

double between(const OneCycleOptions& o, double a, double b, double share) {
  if (o.linear) return a + (b - a) * share;
  return b + (a - b) / 2 * (std::cos(std::numbers::pi * share) + 1);
}

void check_cycle(const OneCycleOptions& options) {
  PEAL_CHECK(options.total_steps >= 2 && options.pct_start >= 0 && options.pct_start <= 1,
             "one_cycle_lr: expected at least 2 steps and pct_start in [0, 1], got ",
             options.total_steps, " and ", options.pct_start);
  PEAL_CHECK(options.max_lr >= 0 && options.div_factor > 0 && options.final_div_factor > 0,
             "one_cycle_lr: expected max_lr >= 0 and factors above 0, got ", options.max_lr, ", ",
             options.div_factor, " and ", options.final_div_factor);
}

// The rate or the momentum at a step.
double one_cycle_at(const OneCycleOptions& o, std::int64_t step, double Turn::*what) {
  // The step after the last one has no rate of its own, but a loop that ends with step() makes it.
  PEAL_CHECK(step <= o.total_steps, "one_cycle_lr: step ", step, " of ", o.total_steps,
             ", counted from 0");
  const double first = o.max_lr / o.div_factor, last = first / o.final_div_factor;
  const double top = o.pct_start * static_cast<double>(o.total_steps) - 1;
  const auto end = static_cast<double>(o.total_steps - 1),
             at = std::min(static_cast<double>(step), end);
  Turn from{0, first, o.max_momentum}, to{top, o.max_lr, o.base_momentum};
  if (at > to.step) {
    from = to;
    to = o.three_phase ? Turn{2 * top, first, o.max_momentum} : Turn{end, last, o.max_momentum};
  }
  if (o.three_phase && at > to.step) {
    from = to;
    to = {end, last, o.max_momentum};
  }
  const double length = to.step - from.step;
  return between(o, from.*what, to.*what, length == 0 ? 1 : (at - from.step) / length);
}

void check_cyclic(const CyclicOptions& o) {
  PEAL_CHECK(o.step_size_up >= 1 && o.step_size_down >= 0,
             "cyclic_lr: expected at least one step up and none or more down, got ", o.step_size_up,
             " and ", o.step_size_down);
}

// How far up it is, from 0 to 1, times what the mode leaves of that.
double height(const CyclicOptions& o, std::int64_t step) {
  const auto up = static_cast<double>(o.step_size_up),
             down = static_cast<double>(o.step_size_down == 0 ? o.step_size_up : o.step_size_down);
  const double at = static_cast<double>(step) / (up + down), turn = up / (up + down);
  const double cycle = std::floor(1 + at), x = 1 + at - cycle;
  const double share = x <= turn ? x / turn : (x - 1) / (turn - 1);
  switch (o.mode) {
    case Cycle::triangular:
      return share;
    case Cycle::triangular2:
      return share / std::pow(2.0, cycle - 1);
    case Cycle::exp_range:
      return share * std::pow(o.gamma, static_cast<double>(step));
  }
  return share;
}

}  // namespace

Schedule one_cycle_lr(const OneCycleOptions& options) {
  check_cycle(options);
  return [o = options](double, std::int64_t step) { return one_cycle_at(o, step, &Turn::rate); };
}

std::function<double(std::int64_t)> one_cycle_momentum(const OneCycleOptions& options) {
  check_cycle(options);
  return [o = options](std::int64_t step) { return one_cycle_at(o, step, &Turn::momentum); };
}

Schedule cyclic_lr(const CyclicOptions& options) {
  check_cyclic(options);
  return [o = options](double, std::int64_t step) {
    return o.base_lr + (o.max_lr - o.base_lr) * height(o, step);
  };
}

std::function<double(std::int64_t)> cyclic_momentum(const CyclicOptions& options) {
  check_cyclic(options);
  return [o = options](std::int64_t step) {
    return o.max_momentum - (o.max_momentum - o.base_momentum) * height(o, step);
  };
}

}  // namespace peal::nn
