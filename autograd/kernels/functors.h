// SPDX-License-Identifier: Apache-2.0
// What happens to one element, compiled for the host (at every vector level) and for CUDA alike.
// All are forced inline: the host compiles them with several instruction sets, and an out-of-line
// copy of the widest could be picked by the linker for a CPU that lacks it. Thread safety: values.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/autograd/kernels/steps.h>

#include <cstdint>

#ifdef __CUDACC__
#define PEAL_ELEMENT __host__ __device__ __forceinline__
#else
#define PEAL_ELEMENT inline __attribute__((always_inline))
#endif

namespace peal::functor {

// Half and BFloat16 are computed in float.
template <class T>
struct Computed {
  using type = T;
};
template <>
struct Computed<Half> {
  using type = float;
};
template <>
struct Computed<BFloat16> {
  using type = float;
};
template <class T>
using computed = typename Computed<T>::type;

struct Add {
  template <class T>
  PEAL_ELEMENT T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Sub {
  template <class T>
  PEAL_ELEMENT T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct Mul {
  template <class T>
  PEAL_ELEMENT T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
struct Div {
  template <class T>
  PEAL_ELEMENT T operator()(T a, T b) const {
    return static_cast<T>(a / b);
  }
};
// The gradient g where relu's output y is not 0; a NaN of y lets g pass, as in PyTorch.
struct ReluBackward {
  template <class T>
  PEAL_ELEMENT T operator()(T g, T y) const {
    return y <= T(0) ? T(0) : g;
  }
};

template <class T>
struct AddScalar {
  T s;
  PEAL_ELEMENT T operator()(T x) const { return static_cast<T>(x + s); }
};
template <class T>
struct MulScalar {
  T s;
  PEAL_ELEMENT T operator()(T x) const { return static_cast<T>(x * s); }
};
template <class T>
struct DivScalar {
  T s;
  PEAL_ELEMENT T operator()(T x) const { return static_cast<T>(x / s); }
};
template <class T>
struct Relu {
  T unused;
  PEAL_ELEMENT T operator()(T x) const { return x <= T(0) ? T(0) : x; }
};

#ifdef __CUDACC__
PEAL_ELEMENT float square_root(float x) { return ::sqrtf(x); }
PEAL_ELEMENT double square_root(double x) { return ::sqrt(x); }
#else
PEAL_ELEMENT float square_root(float x) { return __builtin_sqrtf(x); }
PEAL_ELEMENT double square_root(double x) { return __builtin_sqrt(x); }
#endif

PEAL_ELEMENT double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 != 0) result *= base;
  }
  return result;
}

// SGD with momentum and weight decay (steps.h); b is the momentum buffer.
template <class T>
struct Sgd {
  T lr, momentum, keep, weight_decay;  // keep = 1 - dampening
  bool nesterov, first;
  PEAL_ELEMENT explicit Sgd(const SgdStep& o)
      : lr(T(o.lr)),
        momentum(T(o.momentum)),
        keep(T(1 - o.dampening)),
        weight_decay(T(o.weight_decay)),
        nesterov(o.nesterov),
        first(o.first) {}
  PEAL_ELEMENT T plain(T p, T g) const { return p - lr * (g + weight_decay * p); }
  PEAL_ELEMENT T with_momentum(T p, T g, T& b) const {
    g = g + weight_decay * p;
    b = first ? g : momentum * b + keep * g;
    return p - lr * (nesterov ? g + momentum * b : b);
  }
};

// Adam and AdamW (steps.h), with the bias corrections of the step worked out once.
template <class T>
struct Adam {
  T beta1, beta2, rest1, rest2, eps;  // rest: 1 - beta, rounded once
  T weight_decay;                     // added to g; 0 where decoupled
  T shrink;                           // of p: 1 - lr weight_decay where decoupled, else 1
  T rate;                             // lr / (1 - beta1^step)
  T root_scale;                       // 1 / sqrt(1 - beta2^step)
  PEAL_ELEMENT explicit Adam(const AdamStep& o)
      : beta1(T(o.beta1)),
        beta2(T(o.beta2)),
        rest1(T(1 - o.beta1)),
        rest2(T(1 - o.beta2)),
        eps(T(o.eps)),
        weight_decay(T(o.decoupled ? 0 : o.weight_decay)),
        shrink(T(o.decoupled ? 1 - o.lr * o.weight_decay : 1)),
        rate(T(o.lr / (1 - power(o.beta1, o.step)))),
        root_scale(T(1 / square_root(1 - power(o.beta2, o.step)))) {}
  PEAL_ELEMENT T operator()(T p, T g, T& m, T& v) const {
    g = g + weight_decay * p;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    return p * shrink - rate * m / (square_root(v) * root_scale + eps);
  }
};

// Kept where the word drawn for the element is at least the threshold.
template <class T>
struct Dropout {
  std::uint32_t threshold;
  T scale;
  PEAL_ELEMENT bool keeps(std::uint32_t word) const { return word >= threshold; }
  PEAL_ELEMENT T operator()(T x, bool keep) const { return keep ? x * scale : T(0); }
};

}  // namespace peal::functor
