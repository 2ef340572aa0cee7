// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/kernels/cuda/cudnn.h>

namespace peal::cuda {
namespace {

cudnnHandle_t create_cudnn() {
  cudnnHandle_t handle = nullptr;
  PEAL_CUDNN_CHECK(cudnnCreate(&handle), " (is the device's memory full?)");
  return handle;
}

CudnnOfThread* new_cudnn_of_thread() { return new CudnnOfThread; }

}  // namespace

std::string cudnn_reason(cudnnStatus_t status) {
  char last[512] = "";
  cudnnGetLastErrorString(last, sizeof last);
  return concat(cudnnGetErrorString(status), last[0] != '\0' ? ": " : "", last);
}

CudnnOfThread& cudnn_of_thread(Device device) {
  return *handle_on<CudnnOfThread*, new_cudnn_of_thread>(device);
}

cudnnHandle_t cudnn_on(Device device) {
  const cudaStream_t stream = stream_on(device);
  cudnnHandle_t& handle = cudnn_of_thread(device).handle;
  if (handle == nullptr) handle = create_cudnn();
  PEAL_CUDNN_CHECK(cudnnSetStream(handle, stream), "");
  return handle;
}

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

}  // namespace peal::cuda
