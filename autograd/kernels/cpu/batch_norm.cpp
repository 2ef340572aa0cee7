// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, plane] in any floating type.
#include <peal/autograd/kernels/cpu/batch_norm_columns.h>
#include <peal/autograd/kernels/cpu/channel_runs.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/widening.h>

namespace peal::cpu {

bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  const Planes planes(x);
  if (planes.are_columns()) return widening<column_statistics, 2>(mean, variance, x);
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = functor::computed<T>;
    const ChannelRuns<T> runs(planes);
    const T* from = x.data<T>();
    const auto count = static_cast<double>(planes.count());
    runs.each_channel([&](std::int64_t c, Real* room, Real*) {
      double total = 0, squares = 0;
      const Real* run = nullptr;
      runs.each([&](std::int64_t at, std::int64_t n) {
        run = runs.read(from, c, at, n, room);
        total += real_loops<Real>().sum(run, n);
      });
      const double centre = total / count;
      runs.each([&](std::int64_t at, std::int64_t n) {
        if (!runs.one()) run = runs.read(from, c, at, n, room);
        squares += norm_loops<Real>().squares(run, centre, n);
      });
      set_element(mean, c, centre);
      set_element(variance, c, squares / count);
    });
  });
}

bool batch_norm(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& variance,
                const Tensor& weight, const Tensor& bias, double eps) {
  const Planes planes(x);
  if (planes.are_columns()) {
    return widening<batch_norm_columns, 1>(y, x, mean, variance, weight, bias, eps);
  }
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = functor::computed<T>;
    const ChannelRuns<T> runs(planes);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    runs.each_channel([&](std::int64_t c, Real* room, Real*) {
      const ChannelMap map(c, mean, variance, weight, bias, eps);
      runs.each([&](std::int64_t at, std::int64_t n) {
        const Real* run = runs.read(from, c, at, n, room);
        Real* out = runs.written(to, c, at, room);
        norm_loops<Real>().scale_shift(out, run, map.scale, map.shift, n);
        runs.write(to, c, at, n, out);
      });
    });
  });
}

bool batch_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& variance, const Tensor& weight, double eps, bool own) {
  const Planes planes(x);
  if (planes.are_columns()) {
    return widening<batch_norm_columns_backward, 3>(dx, dweight, dbias, dy, x, mean, variance,
                                                    weight, eps, own);
  }
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = functor::computed<T>;
    const NormLoops<Real>& norm = norm_loops<Real>();
    const ChannelRuns<T> runs(planes);
    const T *from = x.data<T>(), *grad = dy.data<T>();
    T* to = dx.defined() ? dx.data<T>() : nullptr;
    runs.each_channel([&](std::int64_t c, Real* room, Real* more) {
      const double centre = element(mean, c, 0);
      const double inverse = 1 / std::sqrt(element(variance, c, 0) + eps);
      double plain = 0, centred = 0;
      const Real *slopes = nullptr, *values = nullptr;
      const auto read = [&](std::int64_t at, std::int64_t n) {
        slopes = runs.read(grad, c, at, n, room);
        values = runs.read(from, c, at, n, more);
      };
      runs.each([&](std::int64_t at, std::int64_t n) {
        read(at, n);
        double sums[2];
        norm.moments(slopes, nullptr, values, centre, sums, n);
        plain += sums[0];
        centred += sums[1];
      });
      set_element(dweight, c, centred * inverse);
      set_element(dbias, c, plain);
      if (to == nullptr) return;
      const ChannelGradient o(centre, inverse, element(weight, c, 1), plain, centred * inverse,
                              own ? static_cast<double>(planes.count()) : 0);
      runs.each([&](std::int64_t at, std::int64_t n) {
        if (!runs.one()) read(at, n);
        Real* out = runs.written(to, c, at, room);
        norm.combine(out, slopes, nullptr, values, o.scale, o.slope, o.shift, n);
        runs.write(to, c, at, n, out);
      });
    });
  });
}

// Means, and then squared distances from them (Chan, Golub and LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979), in the order of the parts.
bool merge_statistics(const Tensor& merged, const Tensor& parts) {
  const std::int64_t many = parts.size(0), row = parts.size(1), channels = (row - 1) / 2;
  return with_real(parts.dtype(), [&]<class T>() {
    const T* const from = parts.data<T>();
    T* const to = merged.data<T>();
    double count = 0;
    for (std::int64_t part = 0; part < many; ++part) {
      count += static_cast<double>(from[part * row + 2 * channels]);
    }
    // The sum over the parts of f(mean, variance) by their numbers of values.
    const auto weighed = [&](std::int64_t c, const auto& f) {
      double sum = 0;
      for (std::int64_t part = 0; part < many; ++part) {
        const T* const at = from + part * row;
        const auto values = static_cast<double>(at[2 * channels]);
        if (values > 0) {
          sum += values * f(static_cast<double>(at[c]), static_cast<double>(at[channels + c]));
        }
      }
      return sum;
    };
    for (std::int64_t c = 0; c < channels; ++c) {
      const double mean = weighed(c, [](double m, double) { return m; }) / count;
      const double squares =
          weighed(c, [&](double m, double v) { return v + (m - mean) * (m - mean); });
      to[c] = static_cast<T>(mean);
      to[channels + c] = static_cast<T>(squares / count);
      to[2 * channels + c] = static_cast<T>(squares / (count - 1));
    }
    to[3 * channels] = static_cast<T>(count);
  });
}

bool merged_batch_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                                const Tensor& merged, const Tensor& sums, const Tensor& weight,
                                double eps) {
  const Planes planes(x);
  if (planes.are_columns()) {
    return widening<merged_columns_backward, 1>(dx, dy, x, merged, sums, weight, eps);
  }
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = functor::computed<T>;
    const ChannelRuns<T> runs(planes);
    const T *from = x.data<T>(), *grad = dy.data<T>();
    T* to = dx.data<T>();
    runs.each_channel([&](std::int64_t c, Real* room, Real* more) {
      const ChannelGradient o = merged_gradient(c, merged, sums, weight, eps);
      runs.each([&](std::int64_t at, std::int64_t n) {
        const Real* slopes = runs.read(grad, c, at, n, room);
        const Real* values = runs.read(from, c, at, n, more);
        Real* out = runs.written(to, c, at, room);
        norm_loops<Real>().combine(out, slopes, nullptr, values, o.scale, o.slope, o.shift, n);
        runs.write(to, c, at, n, out);
      });
    });
  });
}

}  // namespace peal::cpu
