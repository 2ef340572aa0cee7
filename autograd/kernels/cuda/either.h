// SPDX-License-Identifier: Apache-2.0
// Either<T>: an array in T, or in the type that T is computed in, or none: a normalisation's
// statistics, weight and bias beside an x in low precision. Which it is, is the same for all
// threads. Thread safety: a value.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/functors.h>

#include <cuda_runtime.h>

namespace peal::cuda {

template <class T>
struct Either {
  using C = functor::computed<T>;
  T* narrow = nullptr;
  C* wide = nullptr;

  explicit Either(const Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.dtype() == dtype_of<C>) {
      wide = static_cast<C*>(tensor.raw());
    } else {
      narrow = static_cast<T*>(tensor.raw());
    }
  }
  __device__ C read(std::int64_t i, C otherwise) const {
    if (wide != nullptr) return wide[i];
    return narrow != nullptr ? static_cast<C>(narrow[i]) : otherwise;
  }
  __device__ void write(std::int64_t i, C value) const {
    if (wide != nullptr) wide[i] = value;
    if (narrow != nullptr) narrow[i] = static_cast<T>(value);
  }
};

}  // namespace peal::cuda
