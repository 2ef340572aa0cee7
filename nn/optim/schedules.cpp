// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/optim/schedules.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

namespace peal::nn {
namespace {

// From a at share 0 to b at share 1.
double cosine_between(double a, double b, double share) {
  return b + (a - b) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

}  // namespace

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

Schedule exponential_lr(double gamma) {
  return [=](double base, std::int64_t step) {
    return base * std::pow(gamma, static_cast<double>(step));
  };
}

Schedule constant_lr(double factor, std::int64_t total) {
  PEAL_CHECK(factor >= 0, "constant_lr: expected a factor of at least 0, got ", factor);
  return [=](double base, std::int64_t step) { return step < total ? base * factor : base; };
}

Schedule polynomial_lr(std::int64_t total, double power) {
  PEAL_CHECK(total >= 1, "polynomial_lr: expected at least one step, got ", total);
  return [=](double base, std::int64_t step) {
    const auto passed = static_cast<double>(std::min(step, total));
    return base * std::pow(1 - passed / static_cast<double>(total), power);
  };
}

Schedule cosine_annealing_warm_restarts(std::int64_t t_0, std::int64_t t_mult, double eta_min) {
  PEAL_CHECK(t_0 >= 1 && t_mult >= 1,
             "cosine_annealing_warm_restarts: expected t_0 and t_mult of at least 1, got ", t_0,
             " and ", t_mult);
  return [=](double base, std::int64_t step) {
    std::int64_t length = t_0, at = step;
    if (t_mult == 1) at %= t_0;
    for (; at >= length; length *= t_mult) at -= length;
    return cosine_between(base, eta_min, static_cast<double>(at) / static_cast<double>(length));
  };
}

Schedule inverse_sqrt_lr(std::int64_t warm_up_steps) {
  PEAL_CHECK(warm_up_steps >= 1, "inverse_sqrt_lr: expected at least one step, got ",
             warm_up_steps);
  return [=](double base, std::int64_t step) {
    const auto at = static_cast<double>(step + 1), top = static_cast<double>(warm_up_steps);
    return base * std::min(at / top, std::sqrt(top / at));
  };
}

Schedule lambda_lr(std::function<double(std::int64_t)> factor) {
  PEAL_CHECK(factor != nullptr, "lambda_lr: there is no function");
  return
      [factor = std::move(factor)](double base, std::int64_t step) { return base * factor(step); };
}

Schedule multiplicative_lr(std::function<double(std::int64_t)> factor) {
  PEAL_CHECK(factor != nullptr, "multiplicative_lr: there is no function");
  struct Known {
    std::int64_t step = 0;
    double product = 1;
  };
  return [factor = std::move(factor), known = std::make_shared<Known>()](double base,
                                                                         std::int64_t step) {
    if (step < known->step) *known = {};
    while (known->step < step) known->product *= factor(++known->step);
    return base * known->product;
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

Schedule sequential(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  PEAL_CHECK(schedules.size() == milestones.size() + 1, "sequential: ", schedules.size(),
             " schedules came with ", milestones.size(), " milestones; there is one fewer of them");
  PEAL_CHECK(std::is_sorted(milestones.begin(), milestones.end()),
             "sequential: expected milestones that ascend");
  for (const Schedule& each : schedules) {
    PEAL_CHECK(each != nullptr, "sequential: there is a schedule without a function");
  }
  return [schedules = std::move(schedules), milestones = std::move(milestones)](double base,
                                                                                std::int64_t step) {
    const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
    const auto number = static_cast<std::size_t>(next - milestones.begin());
    return schedules[number](base, number == 0 ? step : step - milestones[number - 1]);
  };
}

Schedule chained(std::vector<Schedule> schedules) {
  PEAL_CHECK(!schedules.empty(), "chained: there are no schedules");
  for (const Schedule& each : schedules) {
    PEAL_CHECK(each != nullptr, "chained: there is a schedule without a function");
  }
  return [schedules = std::move(schedules)](double base, std::int64_t step) {
    for (const Schedule& each : schedules) base = each(base, step);
    return base;
  };
}

}  // namespace peal::nn
