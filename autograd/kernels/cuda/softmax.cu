// SPDX-License-Identifier: Apache-2.0
// A warp a row where it keeps the row in registers, else a block a row.
#include <peal/autograd/kernels/cuda/softmax_row.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cuda {

using functor::computed;

namespace {

template <class To>
struct Store {
  To* y;
  __device__ void operator()(std::int64_t i, computed<To> value) const {
    y[i] = static_cast<To>(value);
  }
};

template <int threads, bool logarithm, class To, class From>
__global__ void softmax_kernel(std::int64_t rows, std::int64_t width, To* y, const From* x) {
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    softmax_row<threads, threads == warp ? softmax_warp_width / warp : 16, logarithm>(
        width, thread, RowElements<From>{x + row * width}, Store<To>{y + row * width});
  }
}

template <int threads, bool logarithm, class T>
__global__ void softmax_backward_kernel(std::int64_t rows, std::int64_t width, T* dx, const T* y,
                                        const T* dy) {
  using C = computed<T>;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const T *saved = y + row * width, *grad = dy + row * width;
    C total = 0;
    for (std::int64_t i = thread; i < width; i += threads) {
      const C g = static_cast<C>(grad[i]);
      total += logarithm ? g : g * static_cast<C>(saved[i]);
    }
    total = group_reduce(total, Plus{}, C(0), threads);
    for (std::int64_t i = thread; i < width; i += threads) {
      const C g = static_cast<C>(grad[i]), p = static_cast<C>(saved[i]);
      dx[row * width + i] = static_cast<T>(logarithm ? g - std::exp(p) * total : p * (g - total));
    }
  }
}

template <bool logarithm, class To, class From>
void forward(const Tensor& y, const Tensor& x) {
  over_rows(x, [&]<int threads>(std::int64_t rows, std::int64_t width, std::int64_t blocks) {
    launch(x, blocks, block, softmax_kernel<threads, logarithm, To, From>, rows, width,
           pointer<To>(y), pointer<const From>(x));
  });
}

template <bool logarithm>
bool backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
  return with_floating(y.dtype(), [&]<class T>() {
    over_rows(y, [&]<int threads>(std::int64_t rows, std::int64_t width, std::int64_t blocks) {
      launch(y, blocks, block, softmax_backward_kernel<threads, logarithm, T>, rows, width,
             pointer<T>(dx), pointer<const T>(y), pointer<const T>(dy));
    });
  });
}

}  // namespace

bool softmax(const Tensor& y, const Tensor& x) {
  return with_floating(x.dtype(), [&]<class T>() { forward<false, T, T>(y, x); });
}

// y may be in the type that x is computed in.
bool log_softmax(const Tensor& y, const Tensor& x) {
  return with_floating(x.dtype(), [&]<class T>() {
    if (y.dtype() == x.dtype()) return forward<true, T, T>(y, x);
    forward<true, computed<T>, T>(y, x);
  });
}

bool softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
  return backward<false>(dx, y, dy);
}

bool log_softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
  return backward<true>(dx, y, dy);
}

}  // namespace peal::cuda
