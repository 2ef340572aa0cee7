// SPDX-License-Identifier: Apache-2.0
// NVTX's ranges, counted: that they nest is all that can be seen here. Thread safety: a thread's
// own.
#pragma once

namespace cuda_host {

inline int& open_ranges() {
  thread_local int open = 0;
  return open;
}

}  // namespace cuda_host

inline int nvtxRangePushA(const char*) { return cuda_host::open_ranges()++; }
inline int nvtxRangePop() { return --cuda_host::open_ranges(); }
