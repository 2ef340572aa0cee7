// SPDX-License-Identifier: Apache-2.0
// Functions of one element, and losses of pairs of them.
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

template <class C>
__device__ C distribution(C x) {
  return C(0.5) * std::erfc(-x * C(0.7071067811865476));
}

template <class C>
struct TanhGelu {
  static constexpr C root = C(0.7978845608028654);  // sqrt(2 / pi)
  static constexpr C cubic = C(0.044715);
  static __device__ C tangent(C x) { return std::tanh(root * (x + cubic * x * x * x)); }
};

// The switches are over a constant.
template <Pointwise op, class C>
struct Function {
  C s, t;
  __device__ C operator()(C x) const {
    switch (op) {
      case Pointwise::exp:
        return std::exp(x);
      case Pointwise::log:
        return std::log(x);
      case Pointwise::sqrt:
        return std::sqrt(x);
      case Pointwise::abs:
        return std::abs(x);
      case Pointwise::tanh:
        return std::tanh(x);
      case Pointwise::sigmoid:
        return C(1) / (C(1) + std::exp(-x));
      case Pointwise::gelu:
        return x * distribution(x);
      case Pointwise::gelu_tanh:
        return C(0.5) * x * (C(1) + TanhGelu<C>::tangent(x));
      case Pointwise::pow:
        return s == C(2) ? x * x : std::pow(x, s);
      case Pointwise::clamp: {
        const C above = x < s ? s : x;
        return above > t ? t : above;
      }
    }
    return x;
  }
};

// dy times the slope, from y where the table says so, else from x.
template <Pointwise op, class C>
struct Slope {
  C s, t;
  __device__ C operator()(C dy, C kept) const { return dy * slope(kept); }
  __device__ C slope(C x) const {
    using G = TanhGelu<C>;
    switch (op) {
      case Pointwise::exp:
        return x;
      case Pointwise::log:
        return C(1) / x;
      case Pointwise::sqrt:
        return C(0.5) / x;
      case Pointwise::abs:
        return static_cast<C>((x > 0) - (x < 0));
      case Pointwise::tanh:
        return C(1) - x * x;
      case Pointwise::sigmoid:
        return x * (C(1) - x);
      case Pointwise::gelu: {
        const C density = C(0.3989422804014327);  // of the normal distribution at 0
        return distribution(x) + x * density * std::exp(C(-0.5) * x * x);
      }
      case Pointwise::gelu_tanh: {
        const C u = G::tangent(x);
        return C(0.5) * (C(1) + u) +
               C(0.5) * x * (C(1) - u * u) * G::root * (C(1) + 3 * G::cubic * x * x);
      }
      case Pointwise::pow:
        return s == C(0) ? C(0) : s * std::pow(x, s - C(1));
      case Pointwise::clamp:
        return static_cast<C>(x >= s && x <= t);
    }
    return x;
  }
};

// run<op>() for the op.
template <class Run>
void with_op(Pointwise op, Run&& run) {
  using enum Pointwise;
  switch (op) {
    case exp:
      return run.template operator()<exp>();
    case log:
      return run.template operator()<log>();
    case sqrt:
      return run.template operator()<sqrt>();
    case abs:
      return run.template operator()<abs>();
    case tanh:
      return run.template operator()<tanh>();
    case sigmoid:
      return run.template operator()<sigmoid>();
    case gelu:
      return run.template operator()<gelu>();
    case gelu_tanh:
      return run.template operator()<gelu_tanh>();
    case pow:
      return run.template operator()<pow>();
    case clamp:
      return run.template operator()<clamp>();
  }
}

}  // namespace

bool pointwise(Pointwise which, const Tensor& out, const Tensor& x, double s, double t) {
  return with_floating(out.dtype(), [&]<class T>() {
    using C = computed<T>;
    with_op(which, [&]<Pointwise op>() {
      using F = Computing<T, Function<op, C>>;
      walk(out, out.numel(), Assigning<F>{{{static_cast<C>(s), static_cast<C>(t)}}},
           Out<T>{pointer<T>(out)}, In<T>(pointer<T>(x)));
    });
  });
}

bool pointwise_backward(Pointwise which, const Tensor& dx, const Tensor& dy, const Tensor& kept,
                        double s, double t) {
  return with_floating(dx.dtype(), [&]<class T>() {
    using C = computed<T>;
    with_op(which, [&]<Pointwise op>() {
      using F = Computing<T, Slope<op, C>>;
      walk(dx, dx.numel(), Assigning<F>{{{static_cast<C>(s), static_cast<C>(t)}}},
           Out<T>{pointer<T>(dx)}, In<T>(pointer<T>(dy)), In<T>(pointer<T>(kept)));
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
        return std::abs(difference) < beta ? difference / beta
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
