// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include "error.h"
#include "random.h"
#include "streams.h"

#include <algorithm>
#include <memory>
#include <set>

struct CUgraph_st {
  std::vector<cuda_host::Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<cuda_host::Node>> nodes;
  cuda_host::WorkRef last{};  // launch: they do not overlap
};

namespace cuda_host {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::shared_ptr<Capture>>;
  return all;
}

// Ends it; its streams and events are as before.
void end(const std::shared_ptr<Capture> capture) {
  capture->ended = true;
  for (const auto& stream : streams()) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
  std::erase_if(captures(), [&](const auto& one) { return one == capture; });
}

// Whether everything that was captured comes before the origin's end.
bool is_joined(const Capture& capture) {
  std::set<std::size_t> seen;
  std::vector<std::size_t> stack;
  const auto at = capture.ends.find(capture.origin);
  if (at != capture.ends.end()) stack = at->second;
  while (!stack.empty()) {
    const std::size_t node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    const auto& after = capture.nodes[node].after;
    stack.insert(stack.end(), after.begin(), after.end());
  }
  return seen.size() == capture.nodes.size();
}

}  // namespace

bool forbidden_by_capture() {
  const auto guard = lock();
  bool forbidden = false;
  for (const auto& capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool meets = capture->mode == cudaStreamCaptureModeRelaxed       ? false
                       : thread_mode == cudaStreamCaptureModeRelaxed       ? false
                       : thread_mode == cudaStreamCaptureModeThreadLocal   ? own
                       : capture->mode == cudaStreamCaptureModeThreadLocal ? own
                                                                           : true;
    if (meets) forbidden = capture->broken = true;
  }
  return forbidden;
}

cudaError_t capture(CUstream_st* stream, Work work) {
  Capture& here = *stream->capture;
  if (here.broken) return cudaErrorStreamCaptureInvalidated;
  auto& ends = here.ends[stream];
  here.nodes.push_back({std::move(work), std::exchange(ends, {here.nodes.size()})});
  return cudaSuccess;
}

bool device_captures(int device) {
  bool any = false;
  for (const auto& stream : streams()) {
    if (stream->capture == nullptr || stream->device != device) continue;
    any = stream->capture->broken = true;
  }
  return any;
}

bool legacy_meets_capture(int device) {
  bool meets = false;
  for (const auto& stream : streams()) {
    if (stream->capture == nullptr || !stream->blocking || stream->device != device) continue;
    meets = stream->capture->broken = true;
  }
  return meets;
}

void forget_captures() {
  while (!captures().empty()) end(captures().back());
}

}  // namespace cuda_host

using namespace cuda_host;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return result(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->legacy) return result(cudaErrorStreamCaptureUnsupported);
  if (stream->capture != nullptr) return result(cudaErrorInvalidValue);
  auto made = std::make_shared<Capture>();
  made->origin = stream;
  made->mode = mode;
  made->thread = std::this_thread::get_id();
  made->ends[stream] = {};
  stream->capture = made;
  captures().push_back(std::move(made));
  return result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const auto guard = lock();
  *graph = nullptr;
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr || stream->capture == nullptr) return result(cudaErrorInvalidValue);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) {
    capture->broken = true;
    return result(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    capture->broken = true;
    return result(cudaErrorStreamCaptureWrongThread);
  }
  const cudaError_t error = capture->broken        ? cudaErrorStreamCaptureInvalidated
                            : !is_joined(*capture) ? cudaErrorStreamCaptureUnjoined
                                                   : cudaSuccess;
  if (error == cudaSuccess) *graph = new CUgraph_st{std::move(capture->nodes)};
  end(capture);
  return result(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return result(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (graph == nullptr || nodes != nullptr) return result(cudaErrorInvalidValue);
  *count = graph->nodes.size();
  return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) return result(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{std::make_shared<const std::vector<Node>>(graph->nodes)};
  return result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (exec == nullptr || stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorNotSupported);
  Work first;
  if (exec->last != nullptr && !exec->last->done) first.after.push_back(exec->last);
  const WorkRef begin = put(stream, std::move(first));
  std::vector<WorkRef> works;
  for (const Node& node : *exec->nodes) {
    Work work = node.work.anew ? node.work.anew() : node.work;
    work.after = {begin};
    for (const std::size_t before : node.after) work.after.push_back(works[before]);
    shuffle_order(work.after);
    work.own = std::make_shared<CUstream_st>();
    work.own->device = stream->device;
    CUstream_st* const queue = work.own.get();
    works.push_back(put(queue, std::move(work)));
  }
  shuffle_order(works);
  works.push_back(begin);
  exec->last = put(stream, {.run = nullptr, .after = std::move(works)});
  return result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return result(cudaSuccess);
}
