// SPDX-License-Identifier: Apache-2.0
// A step length along a direction that meets the strong Wolfe conditions: the loss falls in
// proportion to the step, and the slope becomes flatter (Nocedal and Wright, "Numerical
// optimization", 2006, algorithms 3.5 and 3.6, with cubic interpolation, as PyTorch has it). Pure
// but for what `at` does. Thread safety: as of `at`.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>

namespace peal::nn {

// What there is at a step length: the loss, all gradients as one vector, and the slope along the
// direction.
struct LinePoint {
  double step = 0, loss = 0;
  Tensor gradient;
  double slope = 0;
};

struct LineSearchOptions {
  double decrease = 1e-4, curvature = 0.9;  // the conditions' constants
  double tolerance_change = 1e-9;           // of the bracket, times direction_size
  std::int64_t most = 25;                   // evaluations after the first
};

struct LineSearchResult {
  LinePoint best;
  std::int64_t evaluations;
};

// `start` is the point with step 0, whose slope is below 0; `first` the step that is tried first;
// `direction_size` the largest |element| of the direction.
LineSearchResult strong_wolfe(const std::function<LinePoint(double step)>& at,
                              const LinePoint& start, double first, double direction_size,
                              const LineSearchOptions& options = {});

}  // namespace peal::nn
