// SPDX-License-Identifier: Apache-2.0
#include "block.h"
#include "device.h"
#include "error.h"
#include "fault.h"
#include "memory.h"
#include "queue.h"
#include "symbols.h"

#include <memory>
#include <string>
#include <utility>

namespace cuda_host {
namespace {

bool fits(dim3 grid, dim3 block) {
  const auto in = [](unsigned value, unsigned most) { return value >= 1 && value <= most; };
  return in(grid.x, 2147483647) && in(grid.y, 65535) && in(grid.z, 65535) && in(block.x, 1024) &&
         in(block.y, 1024) && in(block.z, 64) && block.x * block.y * block.z <= 1024;
}

// A kernel that is under way.
struct Running {
  const void* kernel;
  Grid grid;

  // True once it has ended.
  bool advance() {
    set_running(kernel);
    const bool over = grid.advance();
    set_running(nullptr);
    if (!over || grid.failure().empty()) return over;
    const bool hangs = grid.failure().find("deadlock") != std::string::npos;
    set_failure(hangs ? cudaErrorLaunchTimeout : cudaErrorLaunchFailure,
                "kernel " + name_of(kernel) + ", " + grid.failure());
    return true;
  }
};

void run(const void* kernel, dim3 grid, dim3 block, const std::function<void()>& thread) {
  const auto running = std::shared_ptr<Running>(new Running{kernel, {grid, block, thread}});
  if (!running->advance()) suspend([running] { return running->advance(); });
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(config.stream);
  if (stream == nullptr || stream->device != current_device()) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (!fits(config.gridDim, config.blockDim)) return result(cudaErrorInvalidConfiguration);
  if (config.dynamicSmemBytes != 0) return result(cudaErrorNotSupported);
  return result(
      enqueue(stream, {.run = [kernel, grid = config.gridDim, block = config.blockDim,
                               thread = std::move(thread)] { run(kernel, grid, block, thread); },
                       .devices = reach_of(stream->device)}));
}

}  // namespace cuda_host

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  *name = cuda_host::symbol_of(kernel);
  return cuda_host::result(*name == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
