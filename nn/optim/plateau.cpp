// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stateful.h>
#include <peal/nn/optim/plateau.h>

#include <algorithm>
#include <limits>

namespace peal::nn {

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_((options.maximize ? -1 : 1) * std::numeric_limits<double>::infinity()) {
  PEAL_CHECK(
      options.factor >= 0 && options.factor < 1 && options.patience >= 0 && options.cooldown >= 0,
      "ReduceLROnPlateau: expected a factor in [0, 1), patience and cooldown of at least 0, "
      "got ",
      options.factor, ", ", options.patience, " and ", options.cooldown);
}

bool ReduceLROnPlateau::is_better(double measure) const {
  const double sign = options_.maximize ? 1 : -1;
  const double bar = options_.relative ? best_ * (1 + sign * options_.threshold)
                                       : best_ + sign * options_.threshold;
  return options_.maximize ? measure > bar : measure < bar;
}

void ReduceLROnPlateau::step(double measure) {
  if (is_better(measure)) {
    best_ = measure;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group) {
    const double before = optimizer_.lr(group);
    const double after = std::max(before * options_.factor, options_.min_lr);
    if (before - after > options_.eps) optimizer_.set_lr(after, group);
  }
  cooldown_ = options_.cooldown;
  bad_ = 0;
}

NamedTensors ReduceLROnPlateau::state_dict() const {
  return {{"best", Tensor::scalar(best_, Device{})},
          {"bad", Tensor::scalar(bad_, Device{})},
          {"cooldown", Tensor::scalar(cooldown_, Device{})}};
}

void ReduceLROnPlateau::load_state_dict(const NamedTensors& state) {
  StateReader reader("ReduceLROnPlateau", state);
  const auto best = reader.number<double>("best");
  const auto bad = reader.number<std::int64_t>("bad"),
             cooldown = reader.number<std::int64_t>("cooldown");
  reader.finish();
  best_ = best;
  bad_ = bad;
  cooldown_ = cooldown;
}

}  // namespace peal::nn
