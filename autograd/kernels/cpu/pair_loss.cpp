// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>

namespace peal::cpu {
namespace {

template <class T>
T loss_of(PairLoss which, T x, T target, T beta) {
  const T difference = x - target, size = std::abs(difference);
  switch (which) {
    case PairLoss::squared_error:
      return difference * difference;
    case PairLoss::smooth_l1:
      return size < beta ? T(0.5) * difference * difference / beta : size - T(0.5) * beta;
    case PairLoss::bce_with_logits:  // -log of sigmoid(x) or of its complement, without overflow
      return std::max(x, T(0)) - x * target + std::log1p(std::exp(-std::abs(x)));
  }
  return T(0);
}

struct Slopes {
  double x, target;
};

template <class T>
Slopes slopes_of(PairLoss which, T x, T target, T beta) {
  const double difference = static_cast<double>(x - target);
  switch (which) {
    case PairLoss::squared_error:
      return {2 * difference, -2 * difference};
    case PairLoss::smooth_l1: {
      // Within beta, or NaN.
      const bool smooth = beta > 0 && !(std::abs(x - target) >= beta);
      const double slope = smooth ? difference / static_cast<double>(beta)
                                  : static_cast<double>((difference > 0) - (difference < 0));
      return {slope, -slope};
    }
    case PairLoss::bce_with_logits:
      return {1 / (1 + std::exp(-static_cast<double>(x))) - static_cast<double>(target),
              -static_cast<double>(x)};
  }
  return {0, 0};
}

}  // namespace

bool pair_loss(PairLoss which, const Tensor& loss, const Tensor& x, const Tensor& target,
               double beta) {
  return with_real(x.dtype(), [&]<class T>() {
    T* to = loss.data<T>();
    const T *from = x.data<T>(), *wanted = target.data<T>();
    parallel_for(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        to[i] = loss_of(which, from[i], wanted[i], static_cast<T>(beta));
      }
    });
  });
}

bool pair_loss_backward(PairLoss which, const Tensor& dx, const Tensor& dtarget,
                        const Tensor& dloss, const Tensor& x, const Tensor& target, double beta,
                        double scale) {
  const bool each = dloss.shape() == x.shape();
  return with_real(x.dtype(), [&]<class T>() {
    T* to_x = dx.defined() ? dx.data<T>() : nullptr;
    T* to_target = dtarget.defined() ? dtarget.data<T>() : nullptr;
    const T *from = x.data<T>(), *wanted = target.data<T>(), *grad = dloss.data<T>();
    parallel_for(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Slopes slopes = slopes_of(which, from[i], wanted[i], static_cast<T>(beta));
        const double factor = static_cast<double>(grad[each ? i : 0]) * scale;
        if (to_x != nullptr) to_x[i] = static_cast<T>(slopes.x * factor);
        if (to_target != nullptr) to_target[i] = static_cast<T>(slopes.target * factor);
      }
    });
  });
}

}  // namespace peal::cpu
