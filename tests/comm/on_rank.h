// SPDX-License-Identifier: Apache-2.0
// A rank's own device and stream, for ranks that are threads. They must not share a stream, as the
// device's own would be: one rank's wait would then stand before another rank's work, for which it
// waits. Thread safety: the calling thread's.
#pragma once

#include <peal/autograd/core/context.h>
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/stream.h>

namespace peal::testing {

// Where there are fewer devices than ranks, they share them.
class OnDevice {
 public:
  explicit OnDevice(int rank)
      : device{DeviceType::cuda, rank % device_count(DeviceType::cuda)},
        stream(Stream::create(device)),
        before_(context().device),
        guard_(stream) {
    context().device = device;
  }
  ~OnDevice() { context().device = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  const Device device;
  const Stream stream;

 private:
  Device before_;
  StreamGuard guard_;
};

}  // namespace peal::testing
