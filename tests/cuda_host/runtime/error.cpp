// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include "queue.h"

#include <string>

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct Name {
  cudaError_t error;
  const char *name, *text;
};
#define CUDA_HOST_ERROR(name, text) \
  { cudaError##name, "cudaError" #name, text }
constexpr Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    CUDA_HOST_ERROR(InvalidValue, "invalid argument"),
    CUDA_HOST_ERROR(MemoryAllocation, "out of memory"),
    CUDA_HOST_ERROR(InvalidConfiguration, "invalid configuration argument"),
    CUDA_HOST_ERROR(InvalidMemcpyDirection, "invalid copy direction for memcpy"),
    CUDA_HOST_ERROR(NoDevice, "no CUDA-capable device is detected"),
    CUDA_HOST_ERROR(InvalidDevice, "invalid device ordinal"),
    CUDA_HOST_ERROR(InvalidResourceHandle, "invalid resource handle"),
    CUDA_HOST_ERROR(NotReady, "device not ready"),
    CUDA_HOST_ERROR(IllegalAddress, "an illegal memory access was encountered"),
    CUDA_HOST_ERROR(LaunchTimeout, "the launch timed out and was terminated"),
    CUDA_HOST_ERROR(PeerAccessAlreadyEnabled, "peer access is already enabled"),
    CUDA_HOST_ERROR(PeerAccessNotEnabled, "peer access has not been enabled"),
    CUDA_HOST_ERROR(HostMemoryAlreadyRegistered,
                    "part or all of the requested memory range is already mapped"),
    CUDA_HOST_ERROR(HostMemoryNotRegistered,
                    "pointer does not correspond to a registered memory region"),
    CUDA_HOST_ERROR(LaunchFailure, "unspecified launch failure"),
    CUDA_HOST_ERROR(NotSupported, "operation not supported"),
    CUDA_HOST_ERROR(StreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    CUDA_HOST_ERROR(StreamCaptureInvalidated,
                    "operation failed due to a previous error during capture"),
    CUDA_HOST_ERROR(StreamCaptureMerge,
                    "operation would result in a merge of separate capture sequences"),
    CUDA_HOST_ERROR(StreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    CUDA_HOST_ERROR(StreamCaptureUnjoined, "capturing stream has unjoined work"),
    CUDA_HOST_ERROR(StreamCaptureIsolation,
                    "dependency created on uncaptured work in another stream"),
    CUDA_HOST_ERROR(StreamCaptureImplicit,
                    "operation would make the legacy stream depend on a capturing blocking stream"),
    CUDA_HOST_ERROR(CapturedEvent,
                    "operation not permitted on an event last recorded in a capturing stream"),
    CUDA_HOST_ERROR(StreamCaptureWrongThread,
                    "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef CUDA_HOST_ERROR

const Name& find(cudaError_t error) {
  static constexpr Name unknown = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const Name& entry : names) {
    if (entry.error == error) return entry;
  }
  return unknown;
}

}  // namespace

namespace cuda_host {

cudaError_t result(cudaError_t error) {
  const auto guard = lock();
  if (error == cudaSuccess || error == cudaErrorNotReady) {
    if (failure() != cudaSuccess) error = failure();
  }
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace cuda_host

const char* cudaGetErrorName(cudaError_t error) { return find(error).name; }

const char* cudaGetErrorString(cudaError_t error) {
  const auto guard = cuda_host::lock();
  if (error == cudaSuccess || error != cuda_host::failure()) return find(error).text;
  thread_local std::string text;
  text = std::string(find(error).text) + " (" + cuda_host::failure_text() + ")";
  return text.c_str();
}

cudaError_t cudaPeekAtLastError() { return cuda_host::result(last_error); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_host::result(last_error);
  last_error = cudaSuccess;
  return error;
}
