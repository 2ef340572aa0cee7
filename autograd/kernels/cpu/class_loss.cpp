// SPDX-License-Identifier: Apache-2.0
// Losses of rows of classes. cross_entropy reads a row of logits twice in each direction, the
// second time out of a cache, and keeps two numbers of it instead of its probabilities: over large
// vocabularies an array of those is the largest of a whole model.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace peal::cpu {
namespace {

// f(row) over the rows of [rows, width].
template <class F>
void each_row(std::int64_t rows, std::int64_t width, F&& f) {
  parallel_for(rows, 8 * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

// The sum of exp(x - shift).
template <class T>
double sum_of_exp(const T* x, T shift, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    return math_loops().sum_of_exp(x, shift, n);
  } else {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += std::exp(x[i] - shift);
    return total;
  }
}

// out = scale exp(x - shift) - less
template <class T>
void exp_scaled(T* out, const T* x, T shift, T scale, T less, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    math_loops().exp_scaled(out, x, shift, scale, less, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = scale * std::exp(x[i] - shift) - less;
  }
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
      to[row] = wanted[row] == classes.ignored ? T(0) : -from[row * width + wanted[row]];
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

bool cross_entropy(const Tensor& loss, const Tensor& kept, const Tensor& logits,
                   const Tensor& target, const ClassTargets& classes) {
  const std::int64_t rows = logits.size(0), width = logits.size(1);
  return with_real(loss.dtype(), [&]<class T>() {
    T *to = loss.data<T>(), *most = kept.data<T>(), *totals = most + rows;
    const T* from = logits.data<T>();
    const std::int64_t* wanted = target.data<std::int64_t>();
    each_row(rows, width, [&](std::int64_t row) {
      to[row] = most[row] = totals[row] = 0;
      if (wanted[row] == classes.ignored) return;
      const T* x = from + row * width;
      const T largest = real_loops<T>().max(x, width);
      const double total = sum_of_exp(x, largest, width);
      most[row] = largest;
      totals[row] = static_cast<T>(total);
      // From the largest: beside a large one the logarithm would be lost.
      const double logarithm = std::log(total);
      const double sharp = logarithm - static_cast<double>(x[wanted[row]] - largest);
      to[row] = static_cast<T>(sharp);
      if (classes.smoothing == 0) return;
      const double mean = real_loops<T>().sum(x, width) / static_cast<double>(width);
      const double even = logarithm - (mean - static_cast<double>(largest));
      to[row] = static_cast<T>((1 - classes.smoothing) * sharp + classes.smoothing * even);
    });
  });
}

bool cross_entropy_backward(const Tensor& dx, const Tensor& logits, const Tensor& kept,
                            const Tensor& target, const Tensor& dloss, const ClassTargets& classes,
                            double scale) {
  const std::int64_t rows = dx.size(0), width = dx.size(1);
  const bool each = dloss.dim() != 0;
  return with_real(dx.dtype(), [&]<class T>() {
    const T *most = kept.data<T>(), *totals = most + rows, *grad = dloss.data<T>();
    const T* from = logits.data<T>();
    const std::int64_t* wanted = target.data<std::int64_t>();
    const T even = static_cast<T>(classes.smoothing / static_cast<double>(width));
    each_row(rows, width, [&](std::int64_t row) {
      T* to = dx.data<T>() + row * width;
      if (wanted[row] == classes.ignored) {
        std::fill_n(to, width, T(0));
        return;
      }
      const T factor = grad[each ? row : 0] * static_cast<T>(scale);
      exp_scaled(to, from + row * width, most[row], factor / totals[row], even * factor, width);
      to[wanted[row]] -= static_cast<T>(1 - classes.smoothing) * factor;
    });
  });
}

}  // namespace peal::cpu
