// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/graph.h>

namespace peal::cuda {
namespace {

// Memory that captured work allocates comes from a pool of the graph's own, so that nobody else
// uses it between two replays. REQUIRES, when it goes: the last replay is over.
struct Captured {
  explicit Captured(Device where) : device(where), pool(make_pool(where)) {}
  ~Captured() {
    static_cast<void>(cudaSetDevice(device.index));
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    release_pool(device, pool, last);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Device device;
  int pool;
  cudaGraphExec_t executable = nullptr;
  cudaStream_t last = nullptr;  // of the captures, then of the replays
};

Captured& captured(void* graph) { return *static_cast<Captured*>(graph); }
cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

std::shared_ptr<void> create_graph(Device device) { return std::make_shared<Captured>(device); }

void begin_capture(void* graph, void* stream) {
  Captured& here = captured(graph);
  use(here.device);
  here.last = as_stream(stream);
  begin_pool(here.device, here.pool, as_stream(stream));
  // Only this thread's calls are watched: other ranks may be threads that go on.
  PEAL_CUDA_CHECK(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal));
}

void end_capture(void* graph, void* stream) {
  Captured& here = captured(graph);
  cudaGraph_t recorded = nullptr;
  PEAL_CUDA_CHECK(cudaStreamEndCapture(as_stream(stream), &recorded));
  end_pool(here.device, as_stream(stream));
  const cudaError_t status = cudaGraphInstantiate(&here.executable, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  PEAL_CHECK(status == cudaSuccess, "cuda: cudaGraphInstantiate: ", cudaGetErrorString(status));
}

void abandon_capture(void* graph, void* stream) {
  cudaGraph_t recorded = nullptr;
  if (cudaStreamEndCapture(as_stream(stream), &recorded) == cudaSuccess)
    static_cast<void>(cudaGraphDestroy(recorded));
  static_cast<void>(cudaGetLastError());  // the exception under way says what was wrong
  end_pool(captured(graph).device, as_stream(stream));
}

void replay(void* graph, void* stream) {
  Captured& here = captured(graph);
  use(here.device);
  here.last = as_stream(stream);
  PEAL_CUDA_CHECK(cudaGraphLaunch(here.executable, as_stream(stream)));
}

}  // namespace peal::cuda
