// SPDX-License-Identifier: Apache-2.0
// Schedulers by the names of PyTorch's classes, with its defaults: each is an LRScheduler over a
// schedule of schedules.h. ReduceLROnPlateau is in plateau.h.
//
//   nn::CosineAnnealingLR scheduler(optimizer, 100);
//   nn::SequentialLR scheduler(optimizer, {nn::linear_lr(0.1, 1, 5), nn::exponential_lr(0.9)},
//   {5});
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/scheduler.h>

namespace peal::nn {

struct StepLR : LRScheduler {
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1)
      : LRScheduler(optimizer, step_lr(step_size, gamma)) {}
};

struct MultiStepLR : LRScheduler {
  MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1)
      : LRScheduler(optimizer, multi_step_lr(std::move(milestones), gamma)) {}
};

struct ConstantLR : LRScheduler {
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, std::int64_t total_iters = 5)
      : LRScheduler(optimizer, constant_lr(factor, total_iters)) {}
};

struct LinearLR : LRScheduler {
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    std::int64_t total_iters = 5)
      : LRScheduler(optimizer, linear_lr(start_factor, end_factor, total_iters)) {}
};

struct ExponentialLR : LRScheduler {
  ExponentialLR(Optimizer& optimizer, double gamma)
      : LRScheduler(optimizer, exponential_lr(gamma)) {}
};

struct PolynomialLR : LRScheduler {
  explicit PolynomialLR(Optimizer& optimizer, std::int64_t total_iters = 5, double power = 1)
      : LRScheduler(optimizer, polynomial_lr(total_iters, power)) {}
};

struct CosineAnnealingLR : LRScheduler {
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0)
      : LRScheduler(optimizer, cosine_annealing_lr(t_max, eta_min)) {}
};

struct CosineAnnealingWarmRestarts : LRScheduler {
  CosineAnnealingWarmRestarts(Optimizer& optimizer, std::int64_t t_0, std::int64_t t_mult = 1,
                              double eta_min = 0)
      : LRScheduler(optimizer, cosine_annealing_warm_restarts(t_0, t_mult, eta_min)) {}
};

struct LambdaLR : LRScheduler {
  LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t step)> factor)
      : LRScheduler(optimizer, lambda_lr(std::move(factor))) {}
};

struct MultiplicativeLR : LRScheduler {
  MultiplicativeLR(Optimizer& optimizer, std::function<double(std::int64_t step)> factor)
      : LRScheduler(optimizer, multiplicative_lr(std::move(factor))) {}
};

struct SequentialLR : LRScheduler {
  SequentialLR(Optimizer& optimizer, std::vector<Schedule> schedules,
               std::vector<std::int64_t> milestones)
      : LRScheduler(optimizer, sequential(std::move(schedules), std::move(milestones))) {}
};

struct ChainedScheduler : LRScheduler {
  ChainedScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
      : LRScheduler(optimizer, chained(std::move(schedules))) {}
};

// Where momentum cycles, it is the setting "beta1" or "momentum"; Error for an optimizer that has
// neither.
struct OneCycleLR : LRScheduler {
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);
  // One max_lr for each group; that of the options does not count.
  OneCycleLR(Optimizer& optimizer, const std::vector<double>& max_lr,
             const OneCycleOptions& options);
};

struct CyclicLR : LRScheduler {
  CyclicLR(Optimizer& optimizer, const CyclicOptions& options);
};

}  // namespace peal::nn
