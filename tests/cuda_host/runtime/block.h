// SPDX-License-Identifier: Apache-2.0
// Runs a kernel: block after block, in an order that is shuffled, and in each the threads, in an
// order that is shuffled between any two barriers. A thread runs until it waits or ends. One that
// never waits costs a call: the fiber that ran it goes on with the next. A barrier is passed when
// every thread that still lives waits at it; where none can run and some wait, the kernel would
// hang on a GPU, and is reported.
//
// A thread that spins says so by __nanosleep, and lets the others run. A block of which all threads
// wait or spin is left, the next ones begin beside it (`most_resident` at a time, as on a GPU), and
// then the whole grid is left, to be entered again by the same host thread. Blocks beside each
// other must not use __shared__: it is one. Thread safety: one host thread at a time (queue.h's
// lock).
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cuda_host {

class Block;

class Grid {
 public:
  static constexpr std::size_t most_resident = 64;
  Grid(dim3 grid, dim3 block, std::function<void()> thread);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // Goes on. True once it has ended; false where all that is left waits for threads that spin.
  bool advance();
  // Empty where all is well, else what went wrong, with the block.
  const std::string& failure() const { return failure_; }

 private:
  void begin_next();
  bool over(std::size_t resident);

  dim3 grid_, size_;
  std::function<void()> thread_;
  std::uint64_t left_, at_, stride_, count_;
  std::vector<std::unique_ptr<Block>> resident_;
  std::string failure_;
};

// An operation of a whole warp: when all 32 lanes have come with the same function, it is called
// once with what each of them gives. It returns null, or what is wrong.
using Together = const char* (*)(void* const* lanes);
void warp_together(Together what, void* mine);

}  // namespace cuda_host
