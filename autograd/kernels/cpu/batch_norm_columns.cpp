// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/batch_norm_columns.h>
#include <peal/autograd/kernels/cpu/channel_blocks.h>
#include <peal/autograd/kernels/cpu/columns.h>

#include <array>

namespace peal::cpu {
namespace {

// f(first channel, columns from there) over blocks of all channels.
template <class F>
void each_block(const Tensor& x, F&& f) {
  const Planes planes(x);
  parallel_for(planes.channels, planes.batch, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += column_block) {
      f(c, Columns{planes.batch, planes.channels, std::min(column_block, end - c)});
    }
  });
}

template <class T>
using ColumnsOwn = std::array<T, std::size_t{column_block}>;

// make(channel) for each column of a block: what `many` maps need, in T.
template <class T, std::size_t many, class Make>
std::array<ColumnsOwn<T>, many> of_columns(std::int64_t first, const Columns& columns,
                                           const Make& make) {
  std::array<ColumnsOwn<T>, many> all{};
  for (std::int64_t k = 0; k < columns.width; ++k) {
    const std::array<double, many> numbers = make(first + k);
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
  const auto [scale, slope, shift] = of_columns<T, 3>(c, columns, [&](std::int64_t i) {
    const ChannelGradient o = gradient(i);
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
      ColumnsOwn<double> total{};
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
      const auto [scale, shift] = of_columns<T, 2>(c, columns, [&](std::int64_t i) {
        const ChannelMap map(i, mean, variance, weight, bias, eps);
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
      const auto [centres] = of_columns<T, 1>(
          c, columns, [&](std::int64_t i) { return std::array{element(mean, i, 0)}; });
      ColumnsOwn<double> plain{}, centred{};
      column_loops<T>().moments(plain.data(), centred.data(), dy.data<T>() + c, x.data<T>() + c,
                                centres.data(), columns);
      const auto inverse_of = [&](std::int64_t i) {
        return 1 / std::sqrt(element(variance, i, 0) + eps);
      };
      for (std::int64_t k = 0; k < columns.width; ++k) {
        const auto at = static_cast<std::size_t>(k);
        set_element(dweight, c + k, centred[at] *= inverse_of(c + k));
        set_element(dbias, c + k, plain[at]);
      }
      if (!dx.defined()) return;
      combine<T>(dx, dy, x, c, columns, [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i - c);
        return ChannelGradient(element(mean, i, 0), inverse_of(i), element(weight, i, 1), plain[at],
                               centred[at], own ? static_cast<double>(columns.rows) : 0);
      });
    });
  });
}

bool merged_columns_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Tensor& merged, const Tensor& sums, const Tensor& weight,
                             double eps) {
  return with_real(x.dtype(), [&]<class T>() {
    each_block(x, [&](std::int64_t c, const Columns& columns) {
      combine<T>(dx, dy, x, c, columns,
                 [&](std::int64_t i) { return merged_gradient(i, merged, sums, weight, eps); });
    });
  });
}

}  // namespace peal::cpu
