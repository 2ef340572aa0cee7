// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/ahead.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace peal::cpu {
namespace {

constexpr std::int64_t rows_foreseen = 2;

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
        ask_ahead(in + rows_foreseen * width, width);
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
//
// A row gives dx and its share of dweight and dbias while a cache holds it. Blocks of rows have
// sums of their own in T, which are added up in double, so that the order is that of any threads.
bool layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& inverse, const Tensor& weight) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  const bool sums_up = dweight.defined() || dbias.defined();
  const std::int64_t block = sums_up ? 16 : 1, blocks = (rows + block - 1) / block;
  return with_real(x.dtype(), [&]<class T>() {
    const auto& norm = norm_loops<T>();
    const T *from = x.data<T>(), *grad = dy.data<T>(), *w = elements<T>(weight);
    const T *means = mean.data<T>(), *inverses = inverse.data<T>();
    T* to = dx.defined() ? dx.data<T>() : nullptr;
    const auto row_back = [&](std::int64_t row) {
      const std::int64_t at = row * width;
      ask_ahead(grad + at + rows_foreseen * width, width);
      ask_ahead(from + at + rows_foreseen * width, width);
      const double centre = means[row], scale = inverses[row];
      const auto count = static_cast<double>(width);
      double sums[2];
      norm.moments(grad + at, w, from + at, centre, sums, width);
      const double slope = -scale * scale * scale * sums[1] / count;
      norm.combine(to + at, grad + at, w, from + at, scale, slope,
                   -slope * centre - scale * sums[0] / count, width);
    };
    // Of each block a row of sums of dy, and one of dy n.
    const Tensor partial = Tensor::empty({sums_up ? blocks : 0, 2, width}, dtype_of<T>, Device{});
    parallel_for(blocks, 4 * block * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        T* plain = sums_up ? partial.data<T>() + i * 2 * width : nullptr;
        if (sums_up) std::fill_n(plain, 2 * width, T(0));
        for (std::int64_t row = i * block; row < std::min((i + 1) * block, rows); ++row) {
          if (to != nullptr) row_back(row);
          if (!sums_up) continue;
          norm.add_moments(plain, plain + width, grad + row * width, from + row * width, means[row],
                           inverses[row], width);
        }
      }
    });
    if (!sums_up) return;
    const auto add_up = [&](const Tensor& sum, std::int64_t which) {
      if (!sum.defined()) return;
      std::vector<double> total(static_cast<std::size_t>(width));
      for (std::int64_t i = 0; i < blocks; ++i) {
        real_loops<T>().add_to_doubles(total.data(), partial.data<T>() + (2 * i + which) * width,
                                       width);
      }
      std::transform(total.begin(), total.end(), sum.data<T>(),
                     [](double value) { return static_cast<T>(value); });
    };
    add_up(dbias, 0);
    add_up(dweight, 1);
  });
}

}  // namespace peal::cpu
