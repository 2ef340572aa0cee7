// SPDX-License-Identifier: Apache-2.0
// A graph: work and what each comes after. It is made by streams that capture. A launch gives each
// node a queue of its own, so nodes run in any order that respects their edges, between a work that
// begins and one that ends the launch in its stream.
// Thread safety: under queue.h's lock.
#pragma once

#include "queue.h"

#include <map>
#include <thread>

namespace cuda_host {

struct Node {
  Work work;
  std::vector<std::size_t> after;
};

struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread{};
  bool broken = false, ended = false;
  std::vector<Node> nodes{};
  std::map<CUstream_st*, std::vector<std::size_t>>
      ends{};  // a stream's next node comes after these
};

// Whether a call that cannot be captured (an allocation, a synchronise) is an error now; it breaks
// the captures that it meets.
bool forbidden_by_capture();
// The stream's work, while it captures.
cudaError_t capture(CUstream_st* stream, Work work);
// Whether any stream of the device captures: then nobody may wait for the device, and who tries
// breaks the capture, whatever its mode.
bool device_captures(int device);
// Whether any stream that the legacy stream waits for captures.
bool legacy_meets_capture(int device);
// Ends all captures, for tests.
void forget_captures();

}  // namespace cuda_host
