// SPDX-License-Identifier: Apache-2.0
// New tensors of this thread live on a simulated device while one of these lives.
#pragma once

#include <peal/autograd/core/context.h>

#include <utility>

namespace peal::test {

class OnDevice {
 public:
  explicit OnDevice(int index = 0)
      : before_(std::exchange(context().device, {DeviceType::cuda, index})) {}
  ~OnDevice() { context().device = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Device before_;
};

}  // namespace peal::test
