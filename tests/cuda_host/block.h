// SPDX-License-Identifier: Apache-2.0
// Runs a kernel: block after block, in an order that is shuffled, and in each the threads, in an
// order that is shuffled between any two barriers. A thread runs until it waits or ends. One that
// never waits costs a call: the fiber that ran it goes on with the next. A barrier is passed when
// every thread that still lives waits at it; where none can run and some wait, the kernel would
// hang on a GPU, and is reported. Thread safety: one host thread at a time (queue.h's lock).
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>

namespace cuda_host {

// Empty where all is well, else what went wrong, with the block.
std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

// An operation of a whole warp: when all 32 lanes have come with the same function, it is called
// once with what each of them gives. It returns null, or what is wrong.
using Together = const char* (*)(void* const* lanes);
void warp_together(Together what, void* mine);

}  // namespace cuda_host
