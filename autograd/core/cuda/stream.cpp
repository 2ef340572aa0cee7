// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/fault.h>
#include <peal/autograd/core/cuda/graph.h>
#include <peal/autograd/core/cuda/pinned.h>
#include <peal/autograd/core/cuda/relaxed.h>
#include <peal/autograd/core/graph.h>

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace peal::cuda {
namespace {

cudaStream_t native(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

// Streams are used again and never destroyed: the allocator keeps memory by stream, which would be
// of no more use to anybody.
class StreamPool {
 public:
  std::shared_ptr<void> take(Device device, bool high_priority) {
    use(device);
    const std::pair<int, bool> kind{device.index, high_priority};
    cudaStream_t stream = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& list = free_[kind];
      if (!list.empty()) {
        stream = list.back();
        list.pop_back();
      }
    }
    if (stream == nullptr) {
      int least = 0, greatest = 0;
      PEAL_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
      PEAL_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                   high_priority ? greatest : least));
      const std::lock_guard lock(mutex_);
      all_[device.index].push_back(stream);
    }
    return {stream, [this, kind](void* gone) {
              const std::lock_guard lock(mutex_);
              free_[kind].push_back(native(gone));
            }};
  }

  std::vector<cudaStream_t> all(Device device) {
    const std::lock_guard lock(mutex_);
    return all_[device.index];
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, bool>, std::vector<cudaStream_t>> free_;
  std::map<int, std::vector<cudaStream_t>> all_;
};

StreamPool& pool() {
  static auto& instance = *new StreamPool;  // never destroyed, as own()
  return instance;
}

std::shared_ptr<void> create(Device device, bool high_priority) {
  return pool().take(device, high_priority);
}

bool captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

std::shared_ptr<void> create_event(Device device, bool timed) {
  use(device);
  cudaEvent_t event = nullptr;
  PEAL_CUDA_CHECK(
      cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return {event, [](void* gone) { static_cast<void>(cudaEventDestroy(event_of(gone))); }};
}

// One for each device, made when first asked for, and never destroyed: tensors with static storage
// may outlive any order of destruction.
std::shared_ptr<void> own(Device device) {
  static auto& mutex = *new std::mutex;
  static auto& streams = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  const auto index = static_cast<std::size_t>(device.index);
  use(device);
  if (streams.size() <= index) streams.resize(index + 1);
  if (!streams[index]) streams[index] = create(device, false);
  return streams[index];
}

bool reached(cudaError_t status, const char* what) {
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  PEAL_CHECK(status == cudaSuccess, "cuda: ", what, ": ", cudaGetErrorString(status));
  return true;
}

const StreamSpace space = {
    .create = create,
    .own = [](Device device) { return own(device); },
    .synchronize =
        [](Device device, void* stream) {
          PEAL_CUDA_CHECK(cudaStreamSynchronize(native(stream)));
          check_fault(device);
        },
    .query =
        [](Device device, void* stream) {
          use(device);  // a thread's first call would else make a context on device 0
          const Relaxed relaxed;
          return reached(cudaStreamQuery(native(stream)), "cudaStreamQuery");
        },
    .wait =
        [](Device, void* stream, void* event) {
          PEAL_CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_of(event), 0));
        },
    .create_event = create_event,
    .record =
        [](Device, void* event, void* stream) {
          PEAL_CUDA_CHECK(cudaEventRecord(event_of(event), native(stream)));
        },
    .reached =
        [](Device device, void* event) {
          use(device);
          const Relaxed relaxed;
          return reached(cudaEventQuery(event_of(event)), "cudaEventQuery");
        },
    .synchronize_event =
        [](Device device, void* event) {
          PEAL_CUDA_CHECK(cudaEventSynchronize(event_of(event)));
          check_fault(device);
        },
    .seconds_between =
        [](void* start, void* end) {
          float milliseconds = 0;
          PEAL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_of(start), event_of(end)));
          return milliseconds / 1000.0;
        },
    .synchronize_device =
        [](Device device) {
          PEAL_CHECK(context().graph == nullptr || context().graph->device() != device,
                     "synchronize: this thread captures a graph on ", device,
                     ", and what is captured cannot be waited for");
          wait_for_streams(device);
          check_fault(device);
        },
    .allocate_pinned = allocate_pinned,
    .push_range = [](const char* name) { nvtxRangePushA(name); },
    .pop_range = [] { nvtxRangePop(); },
    .create_graph = create_graph,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .abandon_capture = abandon_capture,
    .replay = replay,
};

}  // namespace

// CUDA refuses to wait for a whole device where a thread captures, and spoils the capture. So
// streams are waited for one by one, by events; where another thread begins to capture in between,
// the event is the capture's and says so.
void wait_for_streams(Device device) {
  use(device);
  const Relaxed relaxed;  // who captures may still give memory of others back
  std::vector<std::shared_ptr<void>> ends;
  for (cudaStream_t stream : pool().all(device)) {
    if (captures(stream)) continue;
    const auto end = create_event(device, false);
    PEAL_CUDA_CHECK(cudaEventRecord(event_of(end.get()), stream));
    if (!captures(stream)) ends.push_back(end);
  }
  for (const auto& end : ends) {
    const cudaError_t status = cudaEventSynchronize(event_of(end.get()));
    if (status == cudaErrorCapturedEvent) {
      static_cast<void>(cudaGetLastError());
    } else {
      PEAL_CHECK(status == cudaSuccess, "cuda: ", device, ": ", cudaGetErrorString(status));
    }
  }
}

cudaStream_t stream_on(Device device) {
  use(device);
  const auto& chosen = context().stream;
  if (chosen && chosen->device() == device) return native(chosen->native());
  return native(own(device).get());
}

const StreamSpace& streams() { return space; }

}  // namespace peal::cuda
