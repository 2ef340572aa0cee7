// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, plane]. Threads take whole channels, so that sums have one
// order.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cpu {
namespace {

struct Planes {
  std::int64_t batch, channels, size;
  explicit Planes(const Tensor& x) : batch(x.size(0)), channels(x.size(1)), size(x.size(2)) {}
  double count() const { return static_cast<double>(batch * size); }
  std::int64_t at(std::int64_t image, std::int64_t channel) const {
    return (image * channels + channel) * size;
  }
  // f(channel) over all channels.
  template <class F>
  void each_channel(F&& f) const {
    parallel_for(channels, batch * size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t channel = begin; channel < end; ++channel) f(channel);
    });
  }
};

template <class T>
double element(const Tensor& x, std::int64_t i, double otherwise) {
  return x.defined() ? static_cast<double>(x.data<T>()[i]) : otherwise;
}

}  // namespace

bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  const Planes planes(x);
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T *means = mean.data<T>(), *variances = variance.data<T>();
    planes.each_channel([&](std::int64_t c) {
      double total = 0, squares = 0;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        total += real_loops<T>().sum(from + planes.at(i, c), planes.size);
      }
      const double centre = total / planes.count();
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        squares += norm_loops<T>().squares(from + planes.at(i, c), centre, planes.size);
      }
      means[c] = static_cast<T>(centre);
      variances[c] = static_cast<T>(squares / planes.count());
    });
  });
}

bool batch_norm(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& variance,
                const Tensor& weight, const Tensor& bias, double eps) {
  const Planes planes(x);
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    planes.each_channel([&](std::int64_t c) {
      const double inverse = 1 / std::sqrt(element<T>(variance, c, 0) + eps);
      const double scale = inverse * element<T>(weight, c, 1);
      const double shift = element<T>(bias, c, 0) - element<T>(mean, c, 0) * scale;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        norm_loops<T>().scale_shift(to + planes.at(i, c), from + planes.at(i, c), scale, shift,
                                    planes.size);
      }
    });
  });
}

// With n = (x - mean) inverse: dx = weight inverse (dy - mean(dy) - n mean(dy n)) where mean and
// variance came from x, else weight inverse dy.
bool batch_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& variance, const Tensor& weight, double eps, bool own) {
  const Planes planes(x);
  return with_real(x.dtype(), [&]<class T>() {
    const auto& norm = norm_loops<T>();
    const T *from = x.data<T>(), *grad = dy.data<T>();
    planes.each_channel([&](std::int64_t c) {
      const double centre = element<T>(mean, c, 0);
      const double inverse = 1 / std::sqrt(element<T>(variance, c, 0) + eps);
      const double scale = inverse * element<T>(weight, c, 1);
      double plain = 0, centred = 0;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        double sums[2];
        norm.moments(grad + planes.at(i, c), nullptr, from + planes.at(i, c), centre, sums,
                     planes.size);
        plain += sums[0];
        centred += sums[1];
      }
      if (dweight.defined()) dweight.data<T>()[c] = static_cast<T>(centred * inverse);
      if (dbias.defined()) dbias.data<T>()[c] = static_cast<T>(plain);
      if (!dx.defined()) return;
      const double slope = own ? -scale * inverse * inverse * centred / planes.count() : 0;
      const double shift = own ? -slope * centre - scale * plain / planes.count() : 0;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        norm.combine(dx.data<T>() + planes.at(i, c), grad + planes.at(i, c), nullptr,
                     from + planes.at(i, c), scale, slope, shift, planes.size);
      }
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
  return with_real(x.dtype(), [&]<class T>() {
    const T *from = x.data<T>(), *grad = dy.data<T>();
    const std::int64_t channels = planes.channels;
    const double count = element<T>(merged, 3 * channels, 1);
    planes.each_channel([&](std::int64_t c) {
      const double centre = element<T>(merged, c, 0);
      const double inverse = 1 / std::sqrt(element<T>(merged, channels + c, 0) + eps);
      const double scale = inverse * element<T>(weight, c, 1);
      const double slope = -scale * inverse * element<T>(sums, channels + c, 0) / count;
      const double shift = -slope * centre - scale * element<T>(sums, c, 0) / count;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        norm_loops<T>().combine(dx.data<T>() + planes.at(i, c), grad + planes.at(i, c), nullptr,
                                from + planes.at(i, c), scale, slope, shift, planes.size);
      }
    });
  });
}

}  // namespace peal::cpu
