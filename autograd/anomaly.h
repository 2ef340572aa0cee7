// SPDX-License-Identifier: Apache-2.0
// Anomaly detection: finds the operation whose backward gives the first NaN
// (torch.autograd.detect_anomaly).
//
//   const DetectAnomaly guard;
//   net(x) ... .backward();
//   // Error: backward: 'sqrt' (made in Net.fc1) gave a NaN in the gradient of its input 0 f32 [3,
//   4]
//
// What a forward computes while it lives, notes in which module it was; a backward looks at each
// gradient, of operations recorded before too. It costs a pass over each gradient, and on a device
// a wait for it: for finding faults. Thread safety: of the calling thread's backward alone.
#pragma once

#include <peal/autograd/core/context.h>

#include <string>
#include <string_view>

namespace peal {

class Tensor;

class DetectAnomaly {
 public:
  explicit DetectAnomaly(bool on = true) : before_(std::exchange(context().detect_anomaly, on)) {}
  ~DetectAnomaly() { context().detect_anomaly = before_; }
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool before_;
};

// Error where the gradient of input `input` of the op has a NaN. `where`: in which module, or
// empty.
void check_anomaly(std::string_view op, const std::string& where, std::size_t input,
                   const Tensor& grad);

}  // namespace peal
