// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/fault.h>
#include <peal/autograd/core/cuda/pinned.h>
#include <peal/autograd/core/graph.h>

#include <fmt/format.h>

#include <atomic>

namespace peal::cuda {
namespace {

std::atomic<int> newest{0};  // that was made current

int count() {
  static const int devices = [] {
    int found = 0;
    if (cudaGetDeviceCount(&found) != cudaSuccess) {  // no driver, or none that fits
      static_cast<void>(cudaGetLastError());
      found = 0;
    }
    return found;
  }();
  return devices;
}

void check(Device device) {
  PEAL_CHECK(count() > 0, "cuda: ", device,
             " asked for, but this machine has no CUDA device, or no driver for it; use cpu");
  PEAL_CHECK(device.index >= 0 && device.index < count(), "cuda: ", device, " asked for, but only ",
             count(), " device(s) are here: cuda:0 to cuda:", count() - 1);
}

DeviceDescription description(Device device) {
  check(device);
  cudaDeviceProp properties{};
  PEAL_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index));
  std::string uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return {properties.name, uuid, properties.totalGlobalMem, properties.multiProcessorCount};
}

// What `after` gets from now on comes behind what `before`, a stream of `device`, has.
void follow(cudaStream_t after, Device device, cudaStream_t before) {
  use(device);
  cudaEvent_t event = nullptr;
  PEAL_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const cudaError_t recorded = cudaEventRecord(event, before);
  const cudaError_t waits =
      recorded == cudaSuccess ? cudaStreamWaitEvent(after, event, 0) : recorded;
  static_cast<void>(cudaEventDestroy(event));  // once it is reached
  PEAL_CHECK(waits == cudaSuccess, "cuda: ordering a copy from or to ", device, ": ",
             cudaGetErrorString(waits));
}

const MemorySpace memory = {
    [](Device device, std::size_t bytes) { return allocate(device, bytes, stream_on(device)); },
    [](Device device, void* data, std::size_t) { release(device, data); },
    [](Device device, void* data, std::size_t bytes) {
      if (bytes != 0) PEAL_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream_on(device)));
    },
    [](void* dst, Device to, const void* src, Device from, std::size_t bytes, bool wait) {
      if (bytes == 0) return;
      // Between two devices it is in the order of both, so the source's memory goes to nobody else
      // before it was read.
      const bool between = to.type == from.type && to != from;
      PEAL_CHECK(!between || context().graph == nullptr, "copy from ", from, " to ", to,
                 ": this thread captures a graph, which is of one device; copy before it or after");
      const cudaStream_t source = between ? stream_on(from) : nullptr;
      const cudaStream_t stream = stream_on(to.type == DeviceType::cuda ? to : from);
      if (between) {
        follow(stream, from, source);
        use(to);
      }
      const Device here = to.type == DeviceType::cuda ? to : from;
      const void* const host = to.type == DeviceType::cpu     ? dst
                               : from.type == DeviceType::cpu ? src
                                                              : nullptr;
      const bool captures = context().graph != nullptr && context().graph->device() == here;
      // A replay would read, or write, memory that is another's by then.
      PEAL_CHECK(host == nullptr || !captures || (!wait && is_pinned(host)), "copy from ", from,
                 " to ", to,
                 ": this thread captures a graph, and what is captured cannot be waited for; copy "
                 "before it or after (item() and to_vector() copy too), or with non_blocking from "
                 "or to a Tensor::pinned() that stays as long as the graph");
      PEAL_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
      if (between) follow(source, to, stream);
      if (host != nullptr && !wait && !captures) note_copy(host, stream);
      if (!wait) return;
      PEAL_CUDA_CHECK(cudaStreamSynchronize(stream));
      check_fault(here);
    },
    [](Device device, void* data, void* stream) {
      record_stream(device, data, static_cast<cudaStream_t>(stream));
    },
    statistics,
    reset_peak,
    empty_cache,
    count,
    description,
};

}  // namespace

void use(Device device) {
  check(device);
  PEAL_CUDA_CHECK(cudaSetDevice(device.index));
  if (newest.load(std::memory_order_relaxed) != device.index) {
    newest.store(device.index, std::memory_order_relaxed);
  }
}

Device last_used() { return {DeviceType::cuda, newest.load(std::memory_order_relaxed)}; }

void register_spaces() {
  register_memory_space(DeviceType::cuda, &memory);
  register_stream_space(DeviceType::cuda, &streams());
}

}  // namespace peal::cuda
