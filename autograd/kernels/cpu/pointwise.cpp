// SPDX-License-Identifier: Apache-2.0
// Functions of one element (pointwise.def). The exponential ones are vectors in f32 (loops_math.h);
// in other types, and for the rest, they are the standard library's.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
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
  return with_real(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T* from = x.data<T>();
    const T first = static_cast<T>(s), second = static_cast<T>(t);
    parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        if (math_loops().math(op, to + begin, from + begin, first, second, end - begin)) return;
      }
      with_function<T>(op, first, second, [&](auto f) {
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
    const T first = static_cast<T>(s), second = static_cast<T>(t);
    parallel_for(dx.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        if (math_loops().math_backward(op, to + begin, grad + begin, from + begin, first, second,
                                       end - begin)) {
          return;
        }
      }
      with_slope<T>(op, first, second, [&](auto f) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = grad[i] * f(from[i]);
        }
      });
    });
  });
}

}  // namespace peal::cpu
