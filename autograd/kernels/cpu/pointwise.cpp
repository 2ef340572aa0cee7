// SPDX-License-Identifier: Apache-2.0
// Functions of one element. The exponential ones are vectors in f32 (loops_math.h); in other types,
// and for the rest, they are the standard library's.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>
#include <numbers>

namespace peal::cpu {
namespace {

template <class C>
C distribution(C x) {
  return C(0.5) * std::erfc(-x / std::numbers::sqrt2_v<C>);
}

template <class C>
struct TanhGelu {
  static constexpr C root = C(0.7978845608028654);  // sqrt(2 / pi)
  static constexpr C cubic = C(0.044715);
  static C tangent(C x) { return std::tanh(root * (x + cubic * x * x * x)); }
};

// A call of `run` with the function of op, so that the switch is outside the loop.
template <class C, class Run>
void with_function(Pointwise op, C s, C t, Run&& run) {
  using G = TanhGelu<C>;
  switch (op) {
    case Pointwise::exp:
      return run([](C x) { return std::exp(x); });
    case Pointwise::log:
      return run([](C x) { return std::log(x); });
    case Pointwise::sqrt:
      return run([](C x) { return std::sqrt(x); });
    case Pointwise::abs:
      return run([](C x) { return std::abs(x); });
    case Pointwise::tanh:
      return run([](C x) { return std::tanh(x); });
    case Pointwise::sigmoid:
      return run([](C x) { return C(1) / (C(1) + std::exp(-x)); });
    case Pointwise::gelu:
      return run([](C x) { return x * distribution(x); });
    case Pointwise::gelu_tanh:
      return run([](C x) { return C(0.5) * x * (C(1) + G::tangent(x)); });
    case Pointwise::pow:
      if (s == C(2)) return run([](C x) { return x * x; });
      return run([s](C x) { return std::pow(x, s); });
    case Pointwise::clamp:
      return run([s, t](C x) {
        const C above = x < s ? s : x;
        return above > t ? t : above;
      });
  }
}

// The slope, from y where the table says so, else from x.
template <class C, class Run>
void with_slope(Pointwise op, C s, C t, Run&& run) {
  using G = TanhGelu<C>;
  switch (op) {
    case Pointwise::exp:
      return run([](C y) { return y; });
    case Pointwise::log:
      return run([](C x) { return C(1) / x; });
    case Pointwise::sqrt:
      return run([](C y) { return C(0.5) / y; });
    case Pointwise::abs:
      return run([](C x) { return static_cast<C>((x > 0) - (x < 0)); });
    case Pointwise::tanh:
      return run([](C y) { return C(1) - y * y; });
    case Pointwise::sigmoid:
      return run([](C y) { return y * (C(1) - y); });
    case Pointwise::gelu:
      return run([](C x) {
        constexpr C density = C(0.3989422804014327);  // of the normal distribution at 0
        return distribution(x) + x * density * std::exp(C(-0.5) * x * x);
      });
    case Pointwise::gelu_tanh:
      return run([](C x) {
        const C u = G::tangent(x);
        return C(0.5) * (C(1) + u) +
               C(0.5) * x * (C(1) - u * u) * G::root * (C(1) + 3 * G::cubic * x * x);
      });
    case Pointwise::pow:
      if (s == C(0)) return run([](C) { return C(0); });
      return run([s](C x) { return s * std::pow(x, s - C(1)); });
    case Pointwise::clamp:
      return run([s, t](C x) { return static_cast<C>(x >= s && x <= t); });
  }
}

}  // namespace

bool pointwise(Pointwise op, const Tensor& out, const Tensor& x, double s, double t) {
  return with_real(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T* from = x.data<T>();
    parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        if (math_loops().math(op, to + begin, from + begin, end - begin)) return;
      }
      with_function<T>(op, static_cast<T>(s), static_cast<T>(t), [&](auto f) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = f(from[i]);
        }
      });
    });
  });
}

bool pointwise_backward(Pointwise op, const Tensor& dx, const Tensor& dy, const Tensor& kept,
                        double s, double t) {
  return with_real(dx.dtype(), [&]<class T>() {
    T* to = dx.data<T>();
    const T *grad = dy.data<T>(), *from = kept.data<T>();
    parallel_for(dx.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        if (math_loops().math_backward(op, to + begin, grad + begin, from + begin, end - begin)) {
          return;
        }
      }
      with_slope<T>(op, static_cast<T>(s), static_cast<T>(t), [&](auto f) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = grad[i] * f(from[i]);
        }
      });
    });
  });
}

}  // namespace peal::cpu
