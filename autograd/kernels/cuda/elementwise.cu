// SPDX-License-Identifier: Apache-2.0
// The functors that the CPU uses too, over contiguous arrays (walk.h) and stretched ones
// (broadcast.h).
#include <peal/autograd/kernels/cuda/broadcast.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cuda {

using functor::computed;

namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class T>
void fill_with(const Tensor& out, T value) {
  walk(out, out.numel(), Assigning<Constant<T>>{{value}}, Out<T>{pointer<T>(out)});
}

template <class T>
struct Count {
  __device__ void operator()(std::int64_t i, T& out) const {
    out = static_cast<T>(static_cast<computed<T>>(i));
  }
};

}  // namespace

bool fill(const Tensor& out, double value) {
  if (out.dtype() == DType::boolean) {
    fill_with(out, value != 0);
    return true;
  }
  return with_number(out.dtype(), [&]<class T>() {
    fill_with(out, static_cast<T>(static_cast<computed<T>>(value)));
  });
}

bool arange(const Tensor& out) {
  return with_number(
      out.dtype(), [&]<class T>() { walk(out, out.numel(), Count<T>{}, Out<T>{pointer<T>(out)}); });
}

bool binary(Binary op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (op == Binary::div && !is_floating(out.dtype())) return false;
  return with_number(out.dtype(), [&]<class T>() {
    const auto run = [&]<class F>(F f) { broadcast<T, T, T>(Computing<T, F>{f}, out, a, b); };
    switch (op) {
      case Binary::add:
        return run(functor::Add{});
      case Binary::sub:
        return run(functor::Sub{});
      case Binary::mul:
        return run(functor::Mul{});
      case Binary::div:
        if constexpr (!std::is_integral_v<T>) run(functor::Div{});
        return;
      case Binary::relu_backward:
        return run(functor::ReluBackward{});
    }
  });
}

bool unary(Unary op, const Tensor& out, const Tensor& x, double s) {
  if (op == Unary::div_scalar && !is_floating(out.dtype())) return false;
  return with_number(out.dtype(), [&]<class T>() {
    using C = computed<T>;
    const C scalar = static_cast<C>(s);
    const auto run = [&]<class F>(F f) {
      walk(out, out.numel(), Assigning<Computing<T, F>>{{f}}, Out<T>{pointer<T>(out)},
           In<T>(pointer<T>(x)));
    };
    switch (op) {
      case Unary::add_scalar:
        return run(functor::AddScalar<C>{scalar});
      case Unary::mul_scalar:
        return run(functor::MulScalar<C>{scalar});
      case Unary::div_scalar:
        if constexpr (!std::is_integral_v<T>) run(functor::DivScalar<C>{scalar});
        return;
      case Unary::relu:
        return run(functor::Relu<C>{scalar});
    }
  });
}

namespace {

template <class T>
struct Axpy {
  computed<T> alpha;
  __device__ void operator()(std::int64_t, T& x, const T& y) const {
    using C = computed<T>;
    x = static_cast<T>(static_cast<C>(x) + alpha * static_cast<C>(y));
  }
};

}  // namespace

bool axpy(const Tensor& x, const Tensor& y, double alpha) {
  return with_number(x.dtype(), [&]<class T>() {
    walk(x, x.numel(), Axpy<T>{static_cast<computed<T>>(alpha)}, InOut<T>{pointer<T>(x)},
         In<T>(pointer<T>(y)));
  });
}

bool expand(const Tensor& out, const Tensor& x, double scale) {
  return with_floating(out.dtype(), [&]<class T>() {
    using F = functor::MulScalar<computed<T>>;
    broadcast<T, T>(Computing<T, F>{{static_cast<computed<T>>(scale)}}, out, x);
  });
}

}  // namespace peal::cuda
