// SPDX-License-Identifier: Apache-2.0
// Losses of rows of classes. cross_entropy reads a row of logits twice in each direction, the
// second time out of a cache, and keeps two numbers of it instead of its probabilities: over large
// vocabularies an array of those is the largest of a whole model. Rows of few classes fill no
// vector, so exponentials are taken of many of them together.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace peal::cpu {
namespace {

// f(begin, end) over the rows of [rows, width].
template <class F>
void each_part(std::int64_t rows, std::int64_t width, F&& f) {
  parallel_for(rows, 8 * width, f);
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

// Of so few classes are narrow rows, of which so many elements are taken together.
constexpr std::int64_t narrow_row = 32, narrow_group = 1024;
template <class T>
bool are_narrow(std::int64_t width) {
  return std::is_same_v<T, float> && width <= narrow_row;
}

// f(first row, rows) over parts of narrow rows.
template <class F>
void each_group(std::int64_t begin, std::int64_t end, std::int64_t width, F&& f) {
  const std::int64_t step = narrow_group / width;
  for (std::int64_t row = begin; row < end; row += step) f(row, std::min(step, end - row));
}

// f(row, its largest, its sum of exp(x - largest)) over the rows [begin, end) of x.
template <class T, class F>
void each_sum(const T* x, std::int64_t begin, std::int64_t end, std::int64_t width, F&& f) {
  if (!are_narrow<T>(width)) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T largest = real_loops<T>().max(x + row * width, width);
      f(row, largest, sum_of_exp(x + row * width, largest, width));
    }
    return;
  }
  T powers[narrow_group], most[narrow_group];
  each_group(begin, end, width, [&](std::int64_t first, std::int64_t rows) {
    const T* from = x + first * width;
    for (std::int64_t row = 0, i = 0; row < rows; ++row) {
      T largest = from[i];
      for (std::int64_t k = 1; k < width; ++k) largest = std::max(largest, from[i + k]);
      most[row] = largest;
      for (std::int64_t k = 0; k < width; ++k, ++i) powers[i] = from[i] - largest;
    }
    exp_scaled(powers, powers, T(0), T(1), T(0), rows * width);
    for (std::int64_t row = 0, i = 0; row < rows; ++row) {
      double total = 0;
      for (std::int64_t k = 0; k < width; ++k, ++i) total += static_cast<double>(powers[i]);
      f(first + row, most[row], total);
    }
  });
}

// dx = exp(x - most) of the narrow rows [begin, end).
template <class T>
void narrow_powers(T* dx, const T* x, const T* most, std::int64_t begin, std::int64_t end,
                   std::int64_t width) {
  each_group(begin, end, width, [&](std::int64_t first, std::int64_t rows) {
    T* to = dx + first * width;
    const T* from = x + first * width;
    for (std::int64_t row = 0, i = 0; row < rows; ++row) {
      for (std::int64_t k = 0; k < width; ++k, ++i) to[i] = from[i] - most[first + row];
    }
    exp_scaled(to, to, T(0), T(1), T(0), rows * width);
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
    each_part(loss.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        to[row] = wanted[row] == classes.ignored ? T(0) : -from[row * width + wanted[row]];
      }
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
    const auto finish = [&](std::int64_t row, T largest, double total) {
      to[row] = most[row] = totals[row] = 0;
      if (wanted[row] == classes.ignored) return;
      const T* x = from + row * width;
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
    };
    each_part(rows, width, [&](std::int64_t begin, std::int64_t end) {
      each_sum(from, begin, end, width, finish);
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
    each_part(rows, width, [&](std::int64_t begin, std::int64_t end) {
      const bool narrow = are_narrow<T>(width);
      if (narrow) narrow_powers(dx.data<T>(), from, most, begin, end, width);
      for (std::int64_t row = begin; row < end; ++row) {
        T* to = dx.data<T>() + row * width;
        if (wanted[row] == classes.ignored) {
          std::fill_n(to, width, T(0));
          continue;
        }
        const T factor = grad[each ? row : 0] * static_cast<T>(scale);
        const T share = factor / totals[row], less = even * factor;
        if (narrow) {
          for (std::int64_t k = 0; k < width; ++k) to[k] = share * to[k] - less;
        } else {
          exp_scaled(to, from + row * width, most[row], share, less, width);
        }
        to[wanted[row]] -= static_cast<T>(1 - classes.smoothing) * factor;
      }
    });
  });
}

}  // namespace peal::cpu
