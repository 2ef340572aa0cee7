// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/graph.h>

#include <array>

namespace peal::cuda {
namespace {

// Memory that captured work allocates comes from a pool of the graph's own, so that nobody else
// uses it between two replays.
struct Captured {
  explicit Captured(Device where) : device(where), pool(make_pool(where)) {
    use(device);
    PEAL_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&shift), sizeof(*shift)));
    PEAL_CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&words), replays_ahead * sizeof(*words),
                                  cudaHostAllocPortable));
    for (cudaEvent_t& event : taken)
      PEAL_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  // Waits, because its memory may go to other streams than those of its replays.
  ~Captured() {
    static_cast<void>(cudaSetDevice(device.index));
    static_cast<void>(cudaDeviceSynchronize());
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    for (cudaEvent_t event : taken) static_cast<void>(cudaEventDestroy(event));
    static_cast<void>(cudaFreeHost(words));
    static_cast<void>(cudaFree(shift));
    release_pool(device, pool);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Device device;
  int pool;
  std::uint64_t* shift = nullptr;
  // The shift's way to the device: page-locked words, each free again once its event is reached, so
  // that the host goes on while replays are queued.
  static constexpr std::size_t replays_ahead = 16;
  std::uint64_t* words = nullptr;
  std::array<cudaEvent_t, replays_ahead> taken{};
  std::size_t replays = 0;
  cudaGraphExec_t executable = nullptr;
};

Captured& captured(void* graph) { return *static_cast<Captured*>(graph); }
cudaStream_t native(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

std::shared_ptr<void> create_graph(Device device) { return std::make_shared<Captured>(device); }

const std::uint64_t* begin_capture(void* graph, void* stream) {
  Captured& here = captured(graph);
  use(here.device);
  begin_pool(here.device, here.pool, native(stream));
  // Only this thread's calls are watched: other ranks may be threads that go on.
  PEAL_CUDA_CHECK(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
  return here.shift;
}

void end_capture(void* graph, void* stream) {
  Captured& here = captured(graph);
  end_pool(here.device, native(stream));
  cudaGraph_t recorded = nullptr;
  PEAL_CUDA_CHECK(cudaStreamEndCapture(native(stream), &recorded));
  const cudaError_t status = cudaGraphInstantiate(&here.executable, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  PEAL_CHECK(status == cudaSuccess, "cuda: cudaGraphInstantiate: ", cudaGetErrorString(status));
}

void abandon_capture(void* graph, void* stream) {
  end_pool(captured(graph).device, native(stream));
  cudaGraph_t recorded = nullptr;
  if (cudaStreamEndCapture(native(stream), &recorded) == cudaSuccess)
    static_cast<void>(cudaGraphDestroy(recorded));
  static_cast<void>(cudaGetLastError());  // the exception under way says what was wrong
}

void replay(void* graph, void* stream, const std::uint64_t* shift) {
  Captured& here = captured(graph);
  use(here.device);
  if (shift != nullptr) {
    const std::size_t at = here.replays++ % Captured::replays_ahead;
    PEAL_CUDA_CHECK(cudaEventSynchronize(here.taken[at]));
    here.words[at] = *shift;
    PEAL_CUDA_CHECK(cudaMemcpyAsync(here.shift, here.words + at, sizeof(*shift),
                                    cudaMemcpyHostToDevice, native(stream)));
    PEAL_CUDA_CHECK(cudaEventRecord(here.taken[at], native(stream)));
  }
  PEAL_CUDA_CHECK(cudaGraphLaunch(here.executable, native(stream)));
}

}  // namespace peal::cuda
