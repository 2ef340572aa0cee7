// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stateful.h>
#include <peal/nn/optim/scheduler.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace peal::nn {
namespace {

// From a at share 0 to b at share 1.
double cosine_between(double a, double b, double share) {
  return b + (a - b) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  PEAL_CHECK(schedule_ != nullptr, "LRScheduler: there is no schedule");
  set_steps(0);
}

void LRScheduler::set_steps(std::int64_t steps) {
  PEAL_CHECK(steps >= 0, "LRScheduler: steps count from 0, got ", steps);
  std::vector<double> rates;
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group) {
    rates.push_back(schedule_(optimizer_.initial_lr(group), steps));
  }
  for (std::size_t group = 0; group < rates.size(); ++group) optimizer_.set_lr(rates[group], group);
  steps_ = steps;
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

Schedule step_lr(std::int64_t step_size, double gamma) {
  PEAL_CHECK(step_size >= 1, "step_lr: expected a step size of at least 1, got ", step_size);
  return [=](double base, std::int64_t step) {
    return base * std::pow(gamma, static_cast<double>(step / step_size));
  };
}

Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma) {
  PEAL_CHECK(std::is_sorted(milestones.begin(), milestones.end()),
             "multi_step_lr: expected milestones that ascend");
  return [milestones = std::move(milestones), gamma](double base, std::int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
    return base * std::pow(gamma, static_cast<double>(passed - milestones.begin()));
  };
}

Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min) {
  PEAL_CHECK(t_max >= 1, "cosine_annealing_lr: expected t_max of at least 1, got ", t_max);
  return [=](double base, std::int64_t step) {
    return cosine_between(base, eta_min, static_cast<double>(step) / static_cast<double>(t_max));
  };
}

Schedule linear_lr(double start_factor, double end_factor, std::int64_t total) {
  PEAL_CHECK(total >= 1, "linear_lr: expected at least one step, got ", total);
  return [=](double base, std::int64_t step) {
    const double share = static_cast<double>(std::min(step, total)) / static_cast<double>(total);
    return base * (start_factor + (end_factor - start_factor) * share);
  };
}

Schedule warm_up(std::int64_t steps, Schedule then) {
  PEAL_CHECK(steps >= 1, "warm_up: expected at least one step, got ", steps);
  PEAL_CHECK(then != nullptr, "warm_up: there is no schedule to follow");
  return [steps, then = std::move(then)](double base, std::int64_t step) {
    if (step >= steps) return then(base, step - steps + 1);
    return then(base, 0) * static_cast<double>(step + 1) / static_cast<double>(steps);
  };
}

Schedule one_cycle_lr(const OneCycleOptions& options) {
  PEAL_CHECK(options.total_steps >= 2 && options.pct_start >= 0 && options.pct_start <= 1,
             "one_cycle_lr: expected at least 2 steps and pct_start in [0, 1], got ",
             options.total_steps, " and ", options.pct_start);
  PEAL_CHECK(options.max_lr >= 0 && options.div_factor > 0 && options.final_div_factor > 0,
             "one_cycle_lr: expected max_lr >= 0 and factors above 0, got ", options.max_lr, ", ",
             options.div_factor, " and ", options.final_div_factor);
  return [o = options](double, std::int64_t step) {
    // The step after the last one has no rate of its own, but a loop that ends with step() makes
    // it.
    PEAL_CHECK(step <= o.total_steps, "one_cycle_lr: step ", step, " of ", o.total_steps,
               ", counted from 0");
    const double first = o.max_lr / o.div_factor, last = first / o.final_div_factor;
    const double top = o.pct_start * static_cast<double>(o.total_steps) - 1;
    const auto at = static_cast<double>(std::min(step, o.total_steps - 1)),
               end = static_cast<double>(o.total_steps - 1);
    if (at <= top) return cosine_between(first, o.max_lr, top == 0 ? 1 : at / top);
    return cosine_between(o.max_lr, last, (at - top) / (end - top));
  };
}

}  // namespace peal::nn
