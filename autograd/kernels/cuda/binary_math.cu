// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/binary_functions.h>
#include <peal/autograd/kernels/cuda/broadcast.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {
namespace {

// The op is the same for all threads: a branch that costs nothing beside memory.
template <class T>
struct OfTwo {
  BinaryMath op;
  __device__ T operator()(const T& a, const T& b) const {
    using C = functor::computed<T>;
    return static_cast<T>(functor::of_two(op, static_cast<C>(a), static_cast<C>(b)));
  }
};

}  // namespace

bool binary_math(BinaryMath op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (!serves(op, out.dtype())) return false;
  visit(out.dtype(), [&]<class T>() { broadcast<T, T, T>(OfTwo<T>{op}, out, a, b); });
  return true;
}

}  // namespace peal::cuda
