// SPDX-License-Identifier: Apache-2.0
// PEAL_CUDA_CHECK(call): an Error that names the call and CUDA's reason.
#pragma once

#include <peal/autograd/core/error.h>

#include <cuda_runtime_api.h>

#define PEAL_CUDA_CHECK(call)                                                                     \
  do {                                                                                            \
    const cudaError_t peal_status = (call);                                                       \
    PEAL_CHECK(peal_status == cudaSuccess, "cuda: " #call ": ", cudaGetErrorString(peal_status)); \
  } while (false)
