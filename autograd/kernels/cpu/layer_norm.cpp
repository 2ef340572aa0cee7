// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace peal::cpu {
namespace {

template <class T>
const T* elements(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

bool layer_norm(const Tensor& y, const Tensor& mean, const Tensor& inverse, const Tensor& x,
                const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  return with_real(x.dtype(), [&]<class T>() {
    const auto& norm = norm_loops<T>();
    T *to = y.data<T>(), *means = mean.data<T>(), *inverses = inverse.data<T>();
    const T *from = x.data<T>(), *w = elements<T>(weight), *b = elements<T>(bias);
    parallel_for(rows, 4 * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* in = from + row * width;
        const double centre = real_loops<T>().sum(in, width) / static_cast<double>(width);
        const double variance = norm.squares(in, centre, width) / static_cast<double>(width);
        const double scale = 1 / std::sqrt(variance + eps);
        norm.normalise(to + row * width, in, centre, scale, w, b, width);
        means[row] = static_cast<T>(centre);
        inverses[row] = static_cast<T>(scale);
      }
    });
  });
}

// With n = (x - mean) inverse and g = dy weight: dx = inverse (g - mean(g) - n mean(g n)).
bool layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& inverse, const Tensor& weight) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  return with_real(x.dtype(), [&]<class T>() {
    const auto& norm = norm_loops<T>();
    const T *from = x.data<T>(), *grad = dy.data<T>(), *w = elements<T>(weight);
    const T *means = mean.data<T>(), *inverses = inverse.data<T>();
    if (dx.defined()) {
      T* to = dx.data<T>();
      parallel_for(rows, 4 * width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t at = row * width;
          const double centre = means[row], scale = inverses[row];
          const auto count = static_cast<double>(width);
          double sums[2];
          norm.moments(grad + at, w, from + at, centre, sums, width);
          const double slope = -scale * scale * scale * sums[1] / count;
          norm.combine(to + at, grad + at, w, from + at, scale, slope,
                       -slope * centre - scale * sums[0] / count, width);
        }
      });
    }
    if (!dweight.defined() && !dbias.defined()) return;
    std::vector<double> weights(static_cast<std::size_t>(width)), biases(weights);
    // By columns, so that threads add into sums of their own in one order: a few rows at a time in
    // T, those sums in double. A part of the columns stays in the first cache.
    constexpr std::int64_t few = 16, part = 256;
    parallel_for((width + part - 1) / part, 2 * rows * std::min(width, part),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t column = first * part; column < std::min(last * part, width);
                        column += part) {
                     const std::int64_t n = std::min(part, width - column);
                     for (std::int64_t row = 0; row < rows; row += few) {
                       T plain[part] = {}, centred[part] = {};
                       for (std::int64_t r = row; r < std::min(row + few, rows); ++r) {
                         const std::int64_t from_here = r * width + column;
                         norm.add_moments(plain, centred, grad + from_here, from + from_here,
                                          means[r], inverses[r], n);
                       }
                       for (std::int64_t i = 0; i < n; ++i) {
                         const auto at = static_cast<std::size_t>(column + i);
                         weights[at] += static_cast<double>(centred[i]);
                         biases[at] += static_cast<double>(plain[i]);
                       }
                     }
                   }
                 });
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (dweight.defined()) dweight.data<T>()[i] = static_cast<T>(weights[at]);
      if (dbias.defined()) dbias.data<T>()[i] = static_cast<T>(biases[at]);
    }
  });
}

}  // namespace peal::cpu
