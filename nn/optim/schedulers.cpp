// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/optim/schedulers.h>

namespace peal::nn {
namespace {

std::string momentum_of(const char* who, const Optimizer& optimizer) {
  for (const char* const name : {"beta1", "momentum"}) {
    if (optimizer.has_setting(name)) return name;
  }
  fail(concat(who,
              ": the optimizer has no setting 'beta1' or 'momentum' that could cycle; say "
              "cycle_momentum = false"));
}

std::vector<Schedule> one_cycles(const std::vector<double>& max_lr, OneCycleOptions options) {
  std::vector<Schedule> schedules;
  for (const double each : max_lr) {
    options.max_lr = each;
    schedules.push_back(one_cycle_lr(options));
  }
  return schedules;
}

// The optimizer, once it is sure to have what is asked for: before any rate is set.
Optimizer& with_momentum(const char* who, bool asked, Optimizer& optimizer) {
  if (asked) momentum_of(who, optimizer);
  return optimizer;
}

}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options)
    : OneCycleLR(optimizer, std::vector<double>(optimizer.group_count(), options.max_lr), options) {
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const std::vector<double>& max_lr,
                       const OneCycleOptions& options)
    : LRScheduler(with_momentum("OneCycleLR", options.cycle_momentum, optimizer),
                  one_cycles(max_lr, options)) {
  ends_at(options.total_steps);
  if (options.cycle_momentum) {
    also(momentum_of("OneCycleLR", optimizer), one_cycle_momentum(options));
  }
}

CyclicLR::CyclicLR(Optimizer& optimizer, const CyclicOptions& options)
    : LRScheduler(with_momentum("CyclicLR", options.cycle_momentum, optimizer),
                  cyclic_lr(options)) {
  if (options.cycle_momentum) {
    also(momentum_of("CyclicLR", optimizer), cyclic_momentum(options));
  }
}

}  // namespace peal::nn
