// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cpu {

bool sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
         const SgdStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    T* p = param.data<T>();
    const T* g = grad.data<T>();
    T* buffer = momentum_buffer.defined() ? momentum_buffer.data<T>() : nullptr;
    parallel_for(param.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      real_loops<T>().sgd(p + begin, g + begin, buffer ? buffer + begin : nullptr, options,
                          end - begin);
    });
  });
}

bool adam(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
          const AdamStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    T *p = param.data<T>(), *m = exp_avg.data<T>(), *v = exp_avg_sq.data<T>();
    const T* g = grad.data<T>();
    parallel_for(param.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      real_loops<T>().adam(p + begin, g + begin, m + begin, v + begin, options, end - begin);
    });
  });
}

}  // namespace peal::cpu
