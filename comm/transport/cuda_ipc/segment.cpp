// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/allocator.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/cuda_ipc/segment.h>

namespace peal::comm::ipc {
namespace {

// CUDA shares memory in blocks of this size, with all that lies in them.
constexpr std::size_t shared_block = std::size_t{2} << 20;

// In a stream of its own: what lies in others, of the device's own among them, may be waiting for
// ranks that wait for this one.
cudaError_t zero(void* data, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  cudaError_t status = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
  if (status != cudaSuccess) return status;
  status = cudaMemsetAsync(data, 0, bytes, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  return status;
}

}  // namespace

Segment::Segment(Device device, std::size_t bytes)
    : device_(device), bytes_((bytes + shared_block - 1) / shared_block * shared_block) {
  cuda::use(device_);
  void* data = nullptr;
  cudaError_t made = cudaMalloc(&data, bytes_);
  if (made == cudaErrorMemoryAllocation) {  // what tensors have given back may be enough
    static_cast<void>(cudaGetLastError());
    cuda::empty_cache(device_);
    made = cudaMalloc(&data, bytes_);
  }
  const auto check = [&](cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    static_cast<void>(cudaFree(data));
    fail(concat("cuda: ", call, " of ", bytes_, " bytes on ", device_, ": ",
                cudaGetErrorString(status)));
  };
  check(made, "cudaMalloc");
  check(zero(data, bytes_), "cudaMemsetAsync");
  check(cudaIpcGetMemHandle(&handle_, data), "cudaIpcGetMemHandle");
  own_ = static_cast<std::byte*>(data);
}

Segment::~Segment() {
  try {
    close();
  } catch (const Error&) {  // the driver is gone, and the memory with it
  }
}

void Segment::open(const std::vector<cudaIpcMemHandle_t>& handles, int rank) {
  cuda::use(device_);
  parts_.assign(handles.size(), nullptr);
  parts_[static_cast<std::size_t>(rank)] = own_;
  for (std::size_t r = 0; r < handles.size(); ++r) {
    if (parts_[r] == own_) continue;
    void* data = nullptr;
    const cudaError_t status =
        cudaIpcOpenMemHandle(&data, handles[r], cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    PEAL_CHECK(status == cudaSuccess, "cudaIpcOpenMemHandle of rank ", r, "'s memory on ", device_,
               ": ", cudaGetErrorString(status));
    parts_[r] = static_cast<std::byte*>(data);
  }
}

void Segment::close() {
  if (parts_.empty()) return;
  cuda::use(device_);
  for (std::byte* part : parts_) {
    if (part != nullptr && part != own_) static_cast<void>(cudaIpcCloseMemHandle(part));
  }
  parts_.clear();
}

void Segment::free_own() {
  parts_.clear();
  cuda::use(device_);
  static_cast<void>(cudaFree(own_));
  own_ = nullptr;
}

}  // namespace peal::comm::ipc
