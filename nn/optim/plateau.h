// SPDX-License-Identifier: Apache-2.0
// ReduceLROnPlateau: lowers the rates when a measure, a validation loss mostly, has not become
// better for a while; PyTorch's rule and defaults. With several ranks all give the same measure, or
// their rates part: average it over the ranks first.
//
//   nn::ReduceLROnPlateau scheduler(optimizer, {.patience = 3});
//   for (...) { train(); scheduler.step(validation_loss()); }
//
// Thread safety: as of the optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

struct PlateauOptions {
  bool maximize = false;       // larger is better (an accuracy)
  double factor = 0.1;         // of the rates, each time; below 1
  std::int64_t patience = 10;  // so many steps in a row may be no better
  double threshold = 1e-4;     // better is by more than this share of the best ...
  bool relative = true;        // ... or by more than this number
  std::int64_t cooldown = 0;   // steps after a reduction that do not count
  double min_lr = 0;
  double eps = 1e-8;  // a smaller change of a rate is not made
};

// REQUIRES: the optimizer outlives this.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});
  void step(double measure);
  double best() const { return best_; }

  // "best", "bad" and "cooldown", for a run that goes on; the rates are the optimizer's to save.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  bool is_better(double measure) const;

  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0, cooldown_ = 0;  // steps no better in a row; steps that do not count yet
};

}  // namespace peal::nn
