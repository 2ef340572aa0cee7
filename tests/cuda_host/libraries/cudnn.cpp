// SPDX-License-Identifier: Apache-2.0
// cuDNN's handles and descriptors.
#include "cudnn_state.h"

#include <algorithm>
#include <cstring>

using namespace cuda_host;

namespace {

thread_local std::string reason;

}  // namespace

cudnnStatus_t cuda_host::refuse(cudnnStatus_t status, std::string why) {
  reason = std::move(why);
  return status;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT:
      return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char* message, std::size_t room) {
  if (room == 0) return;
  const std::size_t n = std::min(room - 1, reason.size());
  std::memcpy(message, reason.data(), n);
  message[n] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return bad("nowhere to put the handle");
  const int device = current_device();
  if (device < 0) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
  *handle = new cudnnContext{device, nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the handle is null");
  const std::string wrong = wrong_with(stream, handle->device);
  if (!wrong.empty()) return bad(wrong);
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (tensor == nullptr || n < 1 || c < 1 || h < 1 || w < 1) return bad("a size is below 1");
  if (format != CUDNN_TENSOR_NCHW) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only NCHW");
  *tensor = {type, n, c, h, w};
  return extent(*tensor) <= INT32_MAX ? CUDNN_STATUS_SUCCESS
                                      : refuse(CUDNN_STATUS_NOT_SUPPORTED, "over 2^31 elements");
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (filter == nullptr || k < 1 || c < 1 || h < 1 || w < 1) return bad("a size is below 1");
  if (format != CUDNN_TENSOR_NCHW) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only KCRS");
  *filter = {type, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1) {
    return bad("a padding below 0, or a stride or dilation below 1");
  }
  if (mode != CUDNN_CROSS_CORRELATION) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the kernel would be turned around");
  }
  *convolution = {{pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}, 1, compute, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (groups < 1) return bad("groups below 1");
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}
