// SPDX-License-Identifier: Apache-2.0
// Relaxed: while one lives, this thread may make calls that a capture of its own would refuse and
// be spoilt by: to ask for memory, and whether an event is reached. Only for such as put nothing
// into a stream that captures and wait for none. Thread safety: the calling thread's.
#pragma once

#include <cuda_runtime_api.h>

namespace peal::cuda {

class Relaxed {
 public:
  Relaxed() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~Relaxed() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // later, the one before
};

}  // namespace peal::cuda
