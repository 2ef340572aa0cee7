// SPDX-License-Identifier: Apache-2.0
// cuDNN's handle and descriptors. A handle is a thread's own (handles.h) and is put on the current
// stream at each use. Thread safety: as of the objects.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/kernels/cuda/handles.h>

#include <cudnn.h>

#include <memory>
#include <type_traits>

// What was asked of cuDNN, its answer, and for which geometry.
#define PEAL_CUDNN_CHECK(call, ...)                                                              \
  do {                                                                                           \
    const cudnnStatus_t peal_status = (call);                                                    \
    PEAL_CHECK(peal_status == CUDNN_STATUS_SUCCESS, "cuda: ", ::peal::cuda::name_of_call(#call), \
               ": ", ::peal::cuda::cudnn_reason(peal_status), __VA_ARGS__);                      \
  } while (false)

namespace peal::cuda {

// The status in words, and what cuDNN says about its last error.
std::string cudnn_reason(cudnnStatus_t status);

// What a thread has of cuDNN for a device, and hands on as a whole: a plan of the graph API is
// executed with the handle that made it.
struct CudnnOfThread {
  cudnnHandle_t handle = nullptr;           // made at its first use
  std::shared_ptr<void> attention_plans{};  // cudnn_attention.cpp's
};
CudnnOfThread& cudnn_of_thread(Device device);

// This thread's handle, on the current stream of the device, which becomes the current device.
cudnnHandle_t cudnn_on(Device device);

cudnnDataType_t cudnn_type(DType dtype);

// A factor in the type that cuDNN reads it in: double for f64, else float.
class CudnnFactor {
 public:
  CudnnFactor(DType dtype, double value)
      : wide_(value), narrow_(static_cast<float>(value)), is_wide_(dtype == DType::f64) {}
  const void* get() const {
    if (is_wide_) return &wide_;
    return &narrow_;
  }

 private:
  double wide_;
  float narrow_;
  bool is_wide_;
};

template <class Descriptor, cudnnStatus_t (*create)(Descriptor*),
          cudnnStatus_t (*destroy)(Descriptor)>
class CudnnDescriptor {
 public:
  CudnnDescriptor() {
    Descriptor made = nullptr;
    PEAL_CUDNN_CHECK(create(&made), "");
    descriptor_.reset(made);
  }
  Descriptor get() const { return descriptor_.get(); }

 private:
  struct Destroy {
    void operator()(Descriptor descriptor) const { static_cast<void>(destroy(descriptor)); }
  };
  std::unique_ptr<std::remove_pointer_t<Descriptor>, Destroy> descriptor_;
};

using TensorDescriptor = CudnnDescriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                         cudnnDestroyTensorDescriptor>;
using FilterDescriptor = CudnnDescriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor,
                                         cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    CudnnDescriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                    cudnnDestroyConvolutionDescriptor>;

}  // namespace peal::cuda
