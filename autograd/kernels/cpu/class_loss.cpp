// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>

namespace peal::cpu {
namespace {

// f(row) over the rows of [rows, width].
template <class F>
void each_row(std::int64_t rows, std::int64_t width, F&& f) {
  parallel_for(rows, 8 * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

bool nll(const Tensor& loss, const Tensor& log_probabilities, const Tensor& target,
         const ClassTargets& classes) {
  const std::int64_t width = log_probabilities.size(-1);
  return with_real(loss.dtype(), [&]<class T>() {
    T* to = loss.data<T>();
    const T* from = log_probabilities.data<T>();
    const std::int64_t* wanted = target.data<std::int64_t>();
    each_row(loss.numel(), 1, [&](std::int64_t row) {
      to[row] = 0;
      if (wanted[row] == classes.ignored) return;
      const T* logs = from + row * width;
      to[row] = -logs[wanted[row]];
      if (classes.smoothing == 0) return;
      const double even = -real_loops<T>().sum(logs, width) / static_cast<double>(width);
      to[row] = static_cast<T>((1 - classes.smoothing) * static_cast<double>(to[row]) +
                               classes.smoothing * even);
    });
  });
}

bool nll_backward(const Tensor& dx, const Tensor& dloss, const Tensor& target,
                  const ClassTargets& classes, double scale) {
  const std::int64_t width = dx.size(-1);
  const bool each = dloss.dim() != 0;
  return with_real(dx.dtype(), [&]<class T>() {
    T* to = dx.data<T>();
    const T* grad = dloss.data<T>();
    const std::int64_t* wanted = target.data<std::int64_t>();
    std::fill_n(to, dx.numel(), T(0));
    for (std::int64_t i = 0; i < dx.size(0); ++i) {
      if (wanted[i] == classes.ignored) continue;
      to[i * width + wanted[i]] = -grad[each ? i : 0] * static_cast<T>(scale);
    }
  });
}

bool cross_entropy_backward(const Tensor& dx, const Tensor& log_probabilities, const Tensor& target,
                            const Tensor& dloss, const ClassTargets& classes, double scale) {
  const std::int64_t width = dx.size(-1);
  const bool each = dloss.dim() != 0;
  return with_real(dx.dtype(), [&]<class T>() {
    const T *saved = log_probabilities.data<T>(), *grad = dloss.data<T>();
    const std::int64_t* wanted = target.data<std::int64_t>();
    const T even = static_cast<T>(classes.smoothing / static_cast<double>(width));
    each_row(dx.size(0), width, [&](std::int64_t row) {
      T* to = dx.data<T>() + row * width;
      if (wanted[row] == classes.ignored) {
        std::fill_n(to, width, T(0));
        return;
      }
      const T factor = grad[each ? row : 0] * static_cast<T>(scale);
      const T* logs = saved + row * width;
      if constexpr (std::is_same_v<T, float>) {
        math_loops().exp_shifted(to, logs, 0, width);
      } else {
        for (std::int64_t i = 0; i < width; ++i) to[i] = std::exp(logs[i]);
      }
      for (std::int64_t i = 0; i < width; ++i) to[i] = (to[i] - even) * factor;
      to[wanted[row]] -= static_cast<T>(1 - classes.smoothing) * factor;
    });
  });
}

}  // namespace peal::cpu
