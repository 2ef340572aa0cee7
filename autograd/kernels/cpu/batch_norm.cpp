// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, plane]. Threads take whole channels, so that sums have one
// order. Planes of one element are columns of a matrix (columns.h).
#include <peal/autograd/kernels/cpu/columns.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace peal::cpu {
namespace {

struct Planes {
  std::int64_t batch, channels, size;
  explicit Planes(const Tensor& x) : batch(x.size(0)), channels(x.size(1)), size(x.size(2)) {}
  double count() const { return static_cast<double>(batch * size); }
  std::int64_t at(std::int64_t image, std::int64_t channel) const {
    return (image * channels + channel) * size;
  }
  bool are_columns() const { return size == 1; }
  // f(first channel, columns from there) over blocks of all channels, where planes are columns.
  template <class F>
  void each_block(F&& f) const {
    parallel_for(channels, batch, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; c += column_block) {
        f(c, Columns{batch, channels, std::min(column_block, end - c)});
      }
    });
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

template <class T>
using ColumnsOwn = std::array<T, std::size_t{column_block}>;

// make(channel) for each column of a block, in T.
template <class T, class Make>
ColumnsOwn<T> of_columns(std::int64_t first, const Columns& columns, const Make& make) {
  ColumnsOwn<T> all{};
  for (std::int64_t k = 0; k < columns.width; ++k) {
    all[static_cast<std::size_t>(k)] = static_cast<T>(make(first + k));
  }
  return all;
}

template <class T>
void statistics_of_columns(T* means, T* variances, const T* x, const Planes& planes) {
  planes.each_block([&](std::int64_t c, const Columns& columns) {
    ColumnsOwn<double> total{};
    column_loops<T>().sums(total.data(), x + c, columns);
    for (std::int64_t k = 0; k < columns.width; ++k) {
      means[c + k] = static_cast<T>(total[static_cast<std::size_t>(k)] / planes.count());
    }
    column_loops<T>().squares(total.data(), x + c, means + c, columns);
    for (std::int64_t k = 0; k < columns.width; ++k) {
      variances[c + k] = static_cast<T>(total[static_cast<std::size_t>(k)] / planes.count());
    }
  });
}

}  // namespace

bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  const Planes planes(x);
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T *means = mean.data<T>(), *variances = variance.data<T>();
    if (planes.are_columns()) return statistics_of_columns(means, variances, from, planes);
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
    const auto scale_of = [&](std::int64_t c) {
      return element<T>(weight, c, 1) / std::sqrt(element<T>(variance, c, 0) + eps);
    };
    const auto shift_of = [&](std::int64_t c) {
      return element<T>(bias, c, 0) - element<T>(mean, c, 0) * scale_of(c);
    };
    if (planes.are_columns()) {
      return planes.each_block([&](std::int64_t c, const Columns& columns) {
        const auto scale = of_columns<T>(c, columns, scale_of);
        const auto shift = of_columns<T>(c, columns, shift_of);
        column_loops<T>().scale_shift(to + c, from + c, scale.data(), shift.data(), columns);
      });
    }
    planes.each_channel([&](std::int64_t c) {
      const double scale = scale_of(c), shift = shift_of(c);
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
    // Of the channel: what it takes from dy and x, once their sums are known, and is given itself.
    const auto factors_of = [&](std::int64_t c, double plain, double centred) {
      const double centre = element<T>(mean, c, 0);
      const double inverse = 1 / std::sqrt(element<T>(variance, c, 0) + eps);
      const double scale = inverse * element<T>(weight, c, 1);
      if (dweight.defined()) dweight.data<T>()[c] = static_cast<T>(centred * inverse);
      if (dbias.defined()) dbias.data<T>()[c] = static_cast<T>(plain);
      const double slope = own ? -scale * inverse * inverse * centred / planes.count() : 0;
      const double shift = own ? -slope * centre - scale * plain / planes.count() : 0;
      return std::array{scale, slope, shift};
    };
    if (planes.are_columns()) {
      return planes.each_block([&](std::int64_t c, const Columns& columns) {
        const auto centres =
            of_columns<T>(c, columns, [&](std::int64_t i) { return element<T>(mean, i, 0); });
        ColumnsOwn<double> plain{}, centred{};
        column_loops<T>().moments(plain.data(), centred.data(), grad + c, from + c, centres.data(),
                                  columns);
        std::array<ColumnsOwn<T>, 3> factors{};
        for (std::size_t k = 0; k < static_cast<std::size_t>(columns.width); ++k) {
          const auto of = factors_of(c + static_cast<std::int64_t>(k), plain[k], centred[k]);
          for (std::size_t i = 0; i < 3; ++i) factors[i][k] = static_cast<T>(of[i]);
        }
        if (!dx.defined()) return;
        column_loops<T>().combine(dx.data<T>() + c, grad + c, from + c, factors[0].data(),
                                  factors[1].data(), factors[2].data(), columns);
      });
    }
    planes.each_channel([&](std::int64_t c) {
      double plain = 0, centred = 0;
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        double sums[2];
        norm.moments(grad + planes.at(i, c), nullptr, from + planes.at(i, c),
                     element<T>(mean, c, 0), sums, planes.size);
        plain += sums[0];
        centred += sums[1];
      }
      const auto [scale, slope, shift] = factors_of(c, plain, centred);
      if (!dx.defined()) return;
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
    const auto factors_of = [&](std::int64_t c) {
      const double centre = element<T>(merged, c, 0);
      const double inverse = 1 / std::sqrt(element<T>(merged, channels + c, 0) + eps);
      const double scale = inverse * element<T>(weight, c, 1);
      const double slope = -scale * inverse * element<T>(sums, channels + c, 0) / count;
      return std::array{scale, slope, -slope * centre - scale * element<T>(sums, c, 0) / count};
    };
    if (planes.are_columns()) {
      return planes.each_block([&](std::int64_t c, const Columns& columns) {
        const auto factor = [&](std::size_t i) {
          return of_columns<T>(c, columns, [&](std::int64_t at) { return factors_of(at)[i]; });
        };
        const auto scale = factor(0), slope = factor(1), shift = factor(2);
        column_loops<T>().combine(dx.data<T>() + c, grad + c, from + c, scale.data(), slope.data(),
                                  shift.data(), columns);
      });
    }
    planes.each_channel([&](std::int64_t c) {
      const auto [scale, slope, shift] = factors_of(c);
      for (std::int64_t i = 0; i < planes.batch; ++i) {
        norm_loops<T>().combine(dx.data<T>() + planes.at(i, c), grad + planes.at(i, c), nullptr,
                                from + planes.at(i, c), scale, slope, shift, planes.size);
      }
    });
  });
}

}  // namespace peal::cpu
