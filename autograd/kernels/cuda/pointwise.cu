// SPDX-License-Identifier: Apache-2.0
// Functions of one element, and losses of pairs of them.
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/pointwise_functions.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

// One that is known when it is compiled, and one that is not.
template <Pointwise op, class C>
struct Function {
  C s, t;
  __device__ C operator()(C x) const {
    return functor::PointwiseFunction<op>::template value<functor::Library>(x, s, t);
  }
};
template <class C>
struct AnyFunction {
  C s, t;
  Pointwise op;
  __device__ C operator()(C x) const {
    switch (op) {
#define POINTWISE_OWN(name, ...)
#define POINTWISE(name, ...) \
  case Pointwise::name:      \
    return Function<Pointwise::name, C>{s, t}(x);
#include <peal/autograd/kernels/pointwise.def>
      default:
        return x;
    }
  }
};

// dy times the slope, from y or from x.
template <Pointwise op, class C>
struct Slope {
  C s, t;
  __device__ C operator()(C dy, C kept) const {
    return dy * functor::PointwiseFunction<op>::template slope<functor::Library>(kept, s, t);
  }
};
template <class C>
struct AnySlope {
  C s, t;
  Pointwise op;
  __device__ C operator()(C dy, C kept) const {
    switch (op) {
#define POINTWISE_OWN(name, ...)
#define POINTWISE(name, ...) \
  case Pointwise::name:      \
    return Slope<Pointwise::name, C>{s, t}(dy, kept);
#include <peal/autograd/kernels/pointwise.def>
      default:
        return dy;
    }
  }
};

// run(the function or slope of op, made of s, t and, where it is looked for, op).
template <template <Pointwise, class> class Own, template <class> class Any, class C, class Run>
void with_op(Pointwise op, double s, double t, Run&& run) {
  const C first = static_cast<C>(s), second = static_cast<C>(t);
  switch (op) {
#define POINTWISE(name, ...)
#define POINTWISE_OWN(name, ...) \
  case Pointwise::name:          \
    return run(Own<Pointwise::name, C>{first, second});
#include <peal/autograd/kernels/pointwise.def>
    default:
      return run(Any<C>{first, second, op});
  }
}

}  // namespace

bool pointwise(Pointwise op, const Tensor& out, const Tensor& x, double s, double t) {
  return with_floating(out.dtype(), [&]<class T>() {
    with_op<Function, AnyFunction, computed<T>>(op, s, t, [&]<class F>(const F& f) {
      walk(out, out.numel(), Assigning<Computing<T, F>>{{f}}, Out<T>{pointer<T>(out)},
           In<T>(pointer<T>(x)));
    });
  });
}

bool pointwise_backward(Pointwise op, const Tensor& dx, const Tensor& dy, const Tensor& kept,
                        double s, double t) {
  return with_floating(dx.dtype(), [&]<class T>() {
    with_op<Slope, AnySlope, computed<T>>(op, s, t, [&]<class F>(const F& f) {
      walk(dx, dx.numel(), Assigning<Computing<T, F>>{{f}}, Out<T>{pointer<T>(dx)},
           In<T>(pointer<T>(dy)), In<T>(pointer<T>(kept)));
    });
  });
}

namespace {

template <class C>
struct PairLossOf {
  PairLoss which;
  C beta;
  __device__ C operator()(C x, C target) const {
    const C difference = x - target, size = std::abs(difference);
    switch (which) {
      case PairLoss::squared_error:
        return difference * difference;
      case PairLoss::smooth_l1:
        return size < beta ? C(0.5) * difference * difference / beta : size - C(0.5) * beta;
      case PairLoss::bce_with_logits:  // -log of sigmoid(x) or of its complement, no overflow
        return (x < C(0) ? C(0) : x) - x * target + std::log1p(std::exp(-std::abs(x)));
    }
    return C(0);
  }
  // To x; to the target it is the opposite, except where it is -x.
  __device__ C slope(C x, C target) const {
    const C difference = x - target;
    switch (which) {
      case PairLoss::squared_error:
        return 2 * difference;
      case PairLoss::smooth_l1:
        return beta > C(0) && !(std::abs(difference) >= beta)  // within beta, or NaN
                   ? difference / beta
                   : static_cast<C>((difference > 0) - (difference < 0));
      case PairLoss::bce_with_logits:
        return C(1) / (C(1) + std::exp(-x)) - target;
    }
    return C(0);
  }
};

template <class T>
struct PairLossBackward {
  PairLossOf<computed<T>> loss;
  T *dx, *dtarget;
  const T* dloss;
  bool each;
  computed<T> scale;
  __device__ void operator()(std::int64_t i, const T& x, const T& target) const {
    using C = computed<T>;
    const C from = static_cast<C>(x), wanted = static_cast<C>(target);
    const C slope = loss.slope(from, wanted), factor = static_cast<C>(dloss[each ? i : 0]) * scale;
    if (dx != nullptr) dx[i] = static_cast<T>(slope * factor);
    if (dtarget != nullptr) {
      const C opposite = loss.which == PairLoss::bce_with_logits ? -from : -slope;
      dtarget[i] = static_cast<T>(opposite * factor);
    }
  }
};

}  // namespace

bool pair_loss(PairLoss which, const Tensor& loss, const Tensor& x, const Tensor& target,
               double beta) {
  return with_floating(x.dtype(), [&]<class T>() {
    using C = computed<T>;
    using F = Computing<C, PairLossOf<C>>;
    walk(x, x.numel(), Assigning<F>{{{which, static_cast<C>(beta)}}}, Out<C>{pointer<C>(loss)},
         In<T>(pointer<T>(x)), In<T>(pointer<T>(target)));
  });
}

bool pair_loss_backward(PairLoss which, const Tensor& dx, const Tensor& dtarget,
                        const Tensor& dloss, const Tensor& x, const Tensor& target, double beta,
                        double scale) {
  const bool each = dloss.shape() == x.shape();
  return with_floating(x.dtype(), [&]<class T>() {
    using C = computed<T>;
    const PairLossBackward<T> f{
        {which, static_cast<C>(beta)}, pointer<T>(dx), pointer<T>(dtarget), pointer<T>(dloss), each,
        static_cast<C>(scale)};
    walk(x, x.numel(), f, In<T>(pointer<T>(x)), In<T>(pointer<T>(target)));
  });
}

}  // namespace peal::cuda
