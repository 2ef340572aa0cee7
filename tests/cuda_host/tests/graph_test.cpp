// SPDX-License-Identifier: Apache-2.0
// Capture and replay, and what may not be captured.
#include "device_arrays.h"
#include "queue.h"

using namespace cuda_host::testing;

namespace {

__global__ void double_it(int* x) { *x *= 2; }
__global__ void add_one(int* x) { *x += 1; }
__global__ void add_up(int* out, const int* a, const int* b) { *out = *a + *b; }

struct Captured {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  explicit Captured(cudaStream_t stream) {
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph));
  }
  ~Captured() {
    static_cast<void>(cudaGraphExecDestroy(exec));
    static_cast<void>(cudaGraphDestroy(graph));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
};

}  // namespace

TEST_CASE("a captured stream replays, and nothing runs while it is captured") {
  const Stream stream, side;
  const Event fork, join;
  const Array<int> x({1}), y({1}), z({0});
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  check(cudaEventRecord(fork, stream));
  check(cudaStreamWaitEvent(side, fork));
  check(start(stream, 1, 1, double_it, x.data()));
  check(start(stream, 1, 1, add_one, x.data()));
  check(start(side, 1, 1, add_one, y.data()));
  check(cudaEventRecord(join, side));
  check(cudaStreamWaitEvent(stream, join));
  check(start(stream, 1, 1, add_up, z.data(), x.data(), y.data()));
  cudaStreamCaptureStatus status;
  check(cudaStreamIsCapturing(side, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  const Captured captured(stream);
  check(cudaStreamIsCapturing(side, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(captured.graph, nullptr, &nodes));
  CHECK(nodes == 4);
  CHECK(x.read()[0] == 1);
  for (const int expected : {5, 10, 19}) {  // x: 3, 7, 15; y: 2, 3, 4
    check(cudaGraphLaunch(captured.exec, stream));
    CHECK(z.read(stream)[0] == expected);
  }
}

TEST_CASE("what cannot be captured is refused, and breaks the capture") {
  const Stream stream;
  cudaGraph_t graph = nullptr;
  void* data = nullptr;
  int host = 0;
  const Array<int> x({1});
  const auto breaks = [&](auto call, cudaError_t expected) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(call() == expected);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    static_cast<void>(cudaGetLastError());
  };
  breaks([&] { return cudaMalloc(&data, 4); }, cudaErrorStreamCaptureUnsupported);
  breaks([&] { return cudaStreamSynchronize(stream); }, cudaErrorStreamCaptureUnsupported);
  breaks([&] { return cudaStreamQuery(stream); }, cudaErrorStreamCaptureUnsupported);
  breaks([&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMalloc(&data, 4) == cudaSuccess);
  check(cudaFree(data));
  CHECK(cudaMemcpyAsync(&host, x.data(), 4, cudaMemcpyDefault, stream) ==
        cudaErrorStreamCaptureUnsupported);
  static_cast<void>(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("a capture must be joined, and takes no work from outside") {
  const Stream stream, side;
  const Event event;
  cudaGraph_t graph = nullptr;
  const Array<int> x({1});
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  check(cudaEventRecord(event, stream));
  check(cudaStreamWaitEvent(side, event));
  check(start(side, 1, 1, add_one, x.data()));
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
  check(start(side, 1, 1, add_one, x.data()));
  const Event outside;
  check(cudaEventRecord(outside, side));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamWaitEvent(stream, outside) == cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaGetLastError());
  check(cudaDeviceSynchronize());
}

TEST_CASE("an event of a capture is none of the host's") {
  const Stream stream;
  const Event event;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  check(cudaEventRecord(event, stream));
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
  const Captured captured(stream);
  static_cast<void>(cudaGetLastError());
  check(cudaEventRecord(event, stream));  // an ordinary one again
  check(cudaEventSynchronize(event));
}
