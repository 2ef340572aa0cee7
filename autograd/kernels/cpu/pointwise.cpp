// SPDX-License-Identifier: Apache-2.0
// Functions of one element (pointwise.def). The exponential ones are vectors in f32 (loops_math.h);
// in f64, and for the rest, they are the standard library's.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/wide_room.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/pointwise_functions.h>

namespace peal::cpu {
namespace {

using functor::Library;
using functor::PointwiseFunction;

// A call of `run` with the function of op, so that the switch is outside the loop.
template <class C, class Run>
void with_function(Pointwise op, C s, C t, Run&& run) {
  switch (op) {
#define POINTWISE(name, ...)                                                       \
  case Pointwise::name:                                                            \
    return run([s, t](C x) {                                                       \
      return PointwiseFunction<Pointwise::name>::template value<Library>(x, s, t); \
    });
#include <peal/autograd/kernels/pointwise.def>
  }
}

// The slope, from y or from x.
template <class C, class Run>
void with_slope(Pointwise op, C s, C t, Run&& run) {
  switch (op) {
#define POINTWISE(name, ...)                                                          \
  case Pointwise::name:                                                               \
    return run([s, t](C kept) {                                                       \
      return PointwiseFunction<Pointwise::name>::template slope<Library>(kept, s, t); \
    });
#include <peal/autograd/kernels/pointwise.def>
  }
}

}  // namespace

bool pointwise(Pointwise op, const Tensor& out, const Tensor& x, double s, double t) {
  return with_floating(out.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    T* to = out.data<T>();
    const T* from = x.data<T>();
    const Real first = static_cast<Real>(s), second = static_cast<Real>(t);
    const auto compute = [&](Real* y, const Real* in, std::int64_t n) {
      if constexpr (std::is_same_v<Real, float>) {
        if (pointwise_loops<float>().math(op, y, in, first, second, n)) return;
      }
      with_function<Real>(op, first, second, [&](auto f) {
        for (std::int64_t i = 0; i < n; ++i) y[i] = f(in[i]);
      });
    };
    parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (pointwise_loops<T>().math(op, to + begin, from + begin, first, second, end - begin)) {
          return;
        }
      }
      const WideRoom<T> room(room_elements);
      each_room<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        const Real* in = room.read(from + at, n);
        room.write(to + at, n, [&](Real* y) { compute(y, in, n); });
      });
    });
  });
}

bool pointwise_backward(Pointwise op, const Tensor& dx, const Tensor& dy, const Tensor& kept,
                        double s, double t) {
  return with_floating(dx.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    T* to = dx.data<T>();
    const T *grad = dy.data<T>(), *from = kept.data<T>();
    const Real first = static_cast<Real>(s), second = static_cast<Real>(t);
    const auto compute = [&](Real* out, const Real* slopes, const Real* in, std::int64_t n) {
      if constexpr (std::is_same_v<Real, float>) {
        if (pointwise_loops<float>().math_backward(op, out, slopes, in, first, second, n)) return;
      }
      with_slope<Real>(op, first, second, [&](auto f) {
        for (std::int64_t i = 0; i < n; ++i) out[i] = slopes[i] * f(in[i]);
      });
    };
    parallel_for(dx.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (pointwise_loops<T>().math_backward(op, to + begin, grad + begin, from + begin, first,
                                               second, end - begin)) {
          return;
        }
      }
      const WideRoom<T> room(room_elements), other(room_elements);
      each_room<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        const Real *slopes = room.read(grad + at, n), *in = other.read(from + at, n);
        room.write(to + at, n, [&](Real* out) { compute(out, slopes, in, n); });
      });
    });
  });
}

}  // namespace peal::cpu
