// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/batch_norm_columns.h>
#include <peal/autograd/kernels/cpu/channel_blocks.h>
#include <peal/autograd/kernels/cpu/columns.h>

#include <array>

namespace peal::cpu {
namespace {

// f(first channel, columns from there) over blocks of all channels, so wide that rows are read as
// they lie.
template <class F>
void each_block(const Tensor& x, F&& f) {
  const Planes planes(x);
  parallel_for(planes.channels, planes.batch, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += channel_block) {
      f(c, Columns{planes.batch, planes.channels, std::min(channel_block, end - c)});
    }
  });
}

// make(k) for each column of a block: what `many` maps need, in T.
template <class T, std::size_t many, class Make>
std::array<ChannelsOwn<T>, many> of_columns(const Columns& columns, const Make& make) {
  std::array<ChannelsOwn<T>, many> all;
  for (std::int64_t k = 0; k < columns.width; ++k) {
    const std::array<double, many> numbers = make(k);
    for (std::size_t i = 0; i < many; ++i) {
      all[i][static_cast<std::size_t>(k)] = static_cast<T>(numbers[i]);
    }
  }
  return all;
}

// dx of a block, from each channel's ChannelGradient.
template <class T, class Gradient>
void combine(const Tensor& dx, const Tensor& dy, const Tensor& x, std::int64_t c,
             const Columns& columns, const Gradient& gradient) {
  const auto [scale, slope, shift] = of_columns<T, 3>(columns, [&](std::int64_t k) {
    const ChannelGradient o = gradient(k);
    return std::array{o.scale, o.slope, o.shift};
  });
  column_loops<T>().combine(dx.data<T>() + c, dy.data<T>() + c, x.data<T>() + c, scale.data(),
                            slope.data(), shift.data(), columns);
}

}  // namespace

bool column_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T *means = mean.data<T>(), *variances = variance.data<T>();
    each_block(x, [&](std::int64_t c, const Columns& columns) {
      const auto rows = static_cast<double>(columns.rows);
      ChannelsOwn<double> total{};
      column_loops<T>().sums(total.data(), from + c, columns);
      for (std::int64_t k = 0; k < columns.width; ++k) {
        means[c + k] = static_cast<T>(total[static_cast<std::size_t>(k)] / rows);
      }
      column_loops<T>().squares(total.data(), from + c, means + c, columns);
      for (std::int64_t k = 0; k < columns.width; ++k) {
        variances[c + k] = static_cast<T>(total[static_cast<std::size_t>(k)] / rows);
      }
    });
  });
}

bool batch_norm_columns(const Tensor& y, const Tensor& x, const Tensor& mean,
                        const Tensor& variance, const Tensor& weight, const Tensor& bias,
                        double eps) {
  return with_real(x.dtype(), [&]<class T>() {
    each_block(x, [&](std::int64_t c, const Columns& columns) {
      const ChannelMaps maps(c, columns.width, mean, variance, weight, bias, eps);
      const auto [scale, shift] = of_columns<T, 2>(columns, [&](std::int64_t k) {
        const ChannelMap map = maps[k];
        return std::array{map.scale, map.shift};
      });
      column_loops<T>().scale_shift(y.data<T>() + c, x.data<T>() + c, scale.data(), shift.data(),
                                    columns);
    });
  });
}

bool batch_norm_columns_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 const Tensor& dy, const Tensor& x, const Tensor& mean,
                                 const Tensor& variance, const Tensor& weight, double eps,
                                 bool own) {
  return with_real(x.dtype(), [&]<class T>() {
    each_block(x, [&](std::int64_t c, const Columns& columns) {
      const ChannelGradients gradients(c, columns.width, mean, variance, weight, eps);
      const auto [centres] =
          of_columns<T, 1>(columns, [&](std::int64_t k) { return std::array{gradients.mean(k)}; });
      ChannelsOwn<double> plain, normal;
      column_loops<T>().moments(plain.data(), normal.data(), dy.data<T>() + c, x.data<T>() + c,
                                centres.data(), columns);
      for (std::int64_t k = 0; k < columns.width; ++k) {
        normal[static_cast<std::size_t>(k)] *= gradients.inverse(k);
      }
      set_numbers(dweight, c, normal.data(), columns.width);
      set_numbers(dbias, c, plain.data(), columns.width);
      if (!dx.defined()) return;
      combine<T>(dx, dy, x, c, columns, [&](std::int64_t k) {
        const auto at = static_cast<std::size_t>(k);
        return gradients.of(k, plain[at], normal[at], own ? static_cast<double>(columns.rows) : 0);
      });
    });
  });
}

bool merged_columns_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Tensor& merged, const Tensor& sums, const Tensor& weight,
                             double eps) {
  return with_real(x.dtype(), [&]<class T>() {
    each_block(x, [&](std::int64_t c, const Columns& columns) {
      const MergedGradients gradients(c, columns.width, merged, sums, weight, eps);
      combine<T>(dx, dy, x, c, columns, [&](std::int64_t k) { return gradients[k]; });
    });
  });
}

}  // namespace peal::cpu
