// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, plane] in any floating type.
#include <peal/autograd/kernels/cpu/batch_norm_columns.h>
#include <peal/autograd/kernels/cpu/channel_blocks.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/widening.h>

namespace peal::cpu {
namespace {

// dx of a block, from each channel's ChannelGradient.
template <class T, class Gradient>
void combine_block(const ChannelBlocks<T>& blocks, const typename ChannelBlocks<T>::Block& block,
                   const Tensor& dx, const Tensor& dy, const Tensor& x, const Gradient& gradient) {
  using Real = functor::computed<T>;
  ChannelsOwn<Real> scale, slope, shift;
  for (std::int64_t k = 0; k < block.channels; ++k) {
    const ChannelGradient o = gradient(k);
    const auto at = static_cast<std::size_t>(k);
    scale[at] = static_cast<Real>(o.scale);
    slope[at] = static_cast<Real>(o.slope);
    shift[at] = static_cast<Real>(o.shift);
  }
  blocks.each_image(block, [&](const auto& part) {
    const auto* slopes = blocks.read(dy.data<T>(), part, block.room);
    const auto* values = blocks.read(x.data<T>(), part, block.more);
    auto* out = blocks.written(dx.data<T>(), part, block.room);
    blocks.loops().combine(out, slopes, values, scale.data(), slope.data(), shift.data(),
                           part.planes);
    blocks.write(dx.data<T>(), part, out);
  });
}

}  // namespace

bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  const Planes planes(x);
  if (planes.are_columns()) return widening<column_statistics, 2>(mean, variance, x);
  return with_floating(x.dtype(), [&]<class T>() {
    const ChannelBlocks<T> blocks(planes);
    blocks.each([&](const auto& block) {
      ChannelsOwn<double> means{}, squares{};
      std::int64_t count = 0;
      blocks.each_group(block, [&](const auto& part) {
        blocks.loops().add_statistics(means.data(), squares.data(), count,
                                      blocks.read(x.data<T>(), part, block.room), part.planes);
        count += part.planes.count();
      });
      for (double& each : squares) each /= static_cast<double>(count);
      set_numbers(mean, block.first, means.data(), block.channels);
      set_numbers(variance, block.first, squares.data(), block.channels);
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
    const ChannelBlocks<T> blocks(planes);
    blocks.each([&](const auto& block) {
      ChannelsOwn<Real> scale, shift;
      const ChannelMaps maps(block.first, block.channels, mean, variance, weight, bias, eps);
      for (std::int64_t k = 0; k < block.channels; ++k) {
        const ChannelMap map = maps[k];
        scale[static_cast<std::size_t>(k)] = static_cast<Real>(map.scale);
        shift[static_cast<std::size_t>(k)] = static_cast<Real>(map.shift);
      }
      blocks.each_image(block, [&](const auto& part) {
        const auto* values = blocks.read(x.data<T>(), part, block.room);
        auto* out = blocks.written(y.data<T>(), part, block.room);
        blocks.loops().scale_shift(out, values, scale.data(), shift.data(), part.planes);
        blocks.write(y.data<T>(), part, out);
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
    const ChannelBlocks<T> blocks(planes);
    blocks.each([&](const auto& block) {
      const ChannelGradients gradients(block.first, block.channels, mean, variance, weight, eps);
      ChannelsOwn<Real> centres;
      for (std::int64_t k = 0; k < block.channels; ++k) {
        centres[static_cast<std::size_t>(k)] = static_cast<Real>(gradients.mean(k));
      }
      ChannelsOwn<double> plain{}, normal{};
      blocks.each_group(block, [&](const auto& part) {
        const auto* slopes = blocks.read(dy.data<T>(), part, block.room);
        const auto* values = blocks.read(x.data<T>(), part, block.more);
        blocks.loops().add_moments(plain.data(), normal.data(), slopes, values, centres.data(),
                                   part.planes);
      });
      for (std::int64_t k = 0; k < block.channels; ++k) {
        normal[static_cast<std::size_t>(k)] *= gradients.inverse(k);
      }
      set_numbers(dweight, block.first, normal.data(), block.channels);
      set_numbers(dbias, block.first, plain.data(), block.channels);
      if (!dx.defined()) return;
      combine_block<T>(blocks, block, dx, dy, x, [&](std::int64_t k) {
        const auto at = static_cast<std::size_t>(k);
        return gradients.of(k, plain[at], normal[at],
                            own ? static_cast<double>(planes.count()) : 0);
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
    const ChannelBlocks<T> blocks(planes);
    blocks.each([&](const auto& block) {
      const MergedGradients gradients(block.first, block.channels, merged, sums, weight, eps);
      combine_block<T>(blocks, block, dx, dy, x, [&](std::int64_t k) { return gradients[k]; });
    });
  });
}

}  // namespace peal::cpu
