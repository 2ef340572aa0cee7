// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cuda {
namespace {

template <class T>
struct SgdPlain {
  functor::Sgd<T> f;
  __device__ void operator()(std::int64_t, T& p, const T& g) const { p = f.plain(p, g); }
};

template <class T>
struct SgdMomentum {
  functor::Sgd<T> f;
  __device__ void operator()(std::int64_t, T& p, const T& g, T& buffer) const {
    p = f.with_momentum(p, g, buffer);
  }
};

template <class T>
struct AdamEach {
  functor::Adam<T> f;
  __device__ void operator()(std::int64_t, T& p, const T& g, T& m, T& v) const {
    p = f(p, g, m, v);
  }
};

}  // namespace

bool sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
         const SgdStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    const functor::Sgd<T> f(options);
    const InOut<T> p{pointer<T>(param)};
    const In<T> g(pointer<T>(grad));
    if (momentum_buffer.defined()) {
      walk(param, param.numel(), SgdMomentum<T>{f}, p, g, InOut<T>{pointer<T>(momentum_buffer)});
    } else {
      walk(param, param.numel(), SgdPlain<T>{f}, p, g);
    }
  });
}

bool adam(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
          const AdamStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    walk(param, param.numel(), AdamEach<T>{functor::Adam<T>(options)}, InOut<T>{pointer<T>(param)},
         In<T>(pointer<T>(grad)), InOut<T>{pointer<T>(exp_avg)}, InOut<T>{pointer<T>(exp_avg_sq)});
  });
}

}  // namespace peal::cuda
