// SPDX-License-Identifier: Apache-2.0
// What the stand-in of cuDNN keeps behind its handles and descriptors, and how it refuses. Thread
// safety: a reason is the calling thread's.
#pragma once

#include "library.h"

#include <cudnn.h>

#include <string>

struct cudnnContext {
  int device;
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  std::int64_t n, c, h, w;
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  std::int64_t k, c, h, w;
};
struct cudnnConvolutionStruct {
  std::int64_t padding[2], stride[2], dilation[2], groups = 1;
  cudnnDataType_t compute;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace cuda_host {

// Remembers why, for cudnnGetLastErrorString.
cudnnStatus_t refuse(cudnnStatus_t status, std::string why);
inline cudnnStatus_t bad(std::string why) { return refuse(CUDNN_STATUS_BAD_PARAM, std::move(why)); }

inline std::int64_t extent(const cudnnTensorStruct& x) { return x.n * x.c * x.h * x.w; }
inline std::int64_t extent(const cudnnFilterStruct& x) { return x.k * x.c * x.h * x.w; }

}  // namespace cuda_host
