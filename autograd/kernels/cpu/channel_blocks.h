// SPDX-License-Identifier: Apache-2.0
// The channels of x [N, C, plane] in blocks of those that lie together, image by image: from one
// plane to the next of the same channel it is often a power of two, so that few of them fit a cache
// at once, and none is read ahead. They are read where they lie, but f16, which is widened into a
// buffer, so that what is computed in f32 never leaves the caches. And what normalisation
// does with a channel, from tensors of one number a channel, in any floating type, which are read a
// block at a time. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/planes.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace peal::cpu {

struct Planes {
  std::int64_t batch, channels, size;
  explicit Planes(const Tensor& x) : batch(x.size(0)), channels(x.size(1)), size(x.size(2)) {}
  std::int64_t count() const { return batch * size; }  // of elements a channel
  // Planes of one element are columns of a matrix (batch_norm_columns.h).
  bool are_columns() const { return size == 1; }
};

// So many channels of a block at most, each with a number.
inline constexpr std::int64_t channel_block = 256;
template <class T>
using ChannelsOwn = std::array<T, std::size_t{channel_block}>;

template <class T>
class ChannelBlocks {
 public:
  static constexpr bool widens = std::is_same_v<T, Half>;
  // What loops over planes read and write.
  using Value = std::conditional_t<widens, float, T>;

  // Elements of a block, from element `at` of x on.
  struct Part {
    std::int64_t at;
    PlaneBlock planes;
  };
  // Channels `first` and those behind it, and room for what a thread widens of two tensors.
  struct Block {
    std::int64_t first, channels;
    Value *room, *more;
  };

  explicit ChannelBlocks(const Planes& planes)
      : planes_(planes), length_(std::clamp<std::int64_t>(planes.size, 1, together)) {
    width_ = std::clamp<std::int64_t>(together / length_, 1, channel_block);
    images_ = std::clamp<std::int64_t>(summed / length_, 1, images);
  }

  // f(block) over all channels. A channel's sums have one order, for any number of threads.
  template <class F>
  void each(F&& f) const {
    const std::int64_t room = widens ? images_ * width_ * length_ : 0;
    parallel_for(planes_.channels, planes_.count(), [&](std::int64_t begin, std::int64_t end) {
      const auto both = std::make_unique_for_overwrite<Value[]>(static_cast<std::size_t>(2 * room));
      for (std::int64_t c = begin; c < end; c += width_) {
        f(Block{c, std::min(width_, end - c), both.get(), both.get() + room});
      }
    });
  }
  // f(part), some images at once, so that small planes are summed together.
  template <class F>
  void each_group(const Block& block, F&& f) const {
    for (std::int64_t image = 0; image < planes_.batch; image += images_) {
      each_part(block, image, std::min(images_, planes_.batch - image), f);
    }
  }
  // f(part), image by image from the last on, which is the one that a cache still has.
  template <class F>
  void each_image(const Block& block, F&& f) const {
    for (std::int64_t image = planes_.batch - 1; image >= 0; --image) each_part(block, image, 1, f);
  }

  static const PlaneLoops<Value>& loops() { return plane_loops<Value>(); }
  const Value* read(const T* x, const Part& part, Value* room) const {
    if constexpr (widens) {
      const PlaneBlock& o = part.planes;
      for (std::int64_t image = 0; image < o.images; ++image) {
        width_loops<T>().widen(room + image * o.stride,
                               x + part.at + image * planes_.channels * planes_.size, o.stride);
      }
      return room;
    } else {
      return x + part.at;
    }
  }
  // Where a part of one image is to be computed that write() then brings to y.
  Value* written(T* y, const Part& part, Value* room) const {
    if constexpr (widens) {
      return room;
    } else {
      return y + part.at;
    }
  }
  void write(T* y, const Part& part, const Value* values) const {
    if constexpr (widens) width_loops<T>().narrow(y + part.at, values, part.planes.stride);
  }

 private:
  static constexpr std::int64_t together = 4096;  // elements of an image in a block
  static constexpr std::int64_t summed = 1024, images = 8;

  template <class F>
  void each_part(const Block& block, std::int64_t image, std::int64_t count, F&& f) const {
    const std::int64_t whole = planes_.channels * planes_.size;
    const std::int64_t first = image * whole + block.first * planes_.size;
    for (std::int64_t begin = 0; begin < planes_.size; begin += length_) {
      const std::int64_t size = std::min(length_, planes_.size - begin);
      const std::int64_t stride = widens ? block.channels * size : whole;
      f(Part{first + begin, {count, stride, block.channels, size}});
    }
  }

  Planes planes_;
  std::int64_t length_, width_, images_;  // of a part: of a plane, channels, images
};

// The numbers of a block's channels, in double; `otherwise` where there is no tensor.
class ChannelNumbers {
 public:
  ChannelNumbers(const Tensor& x, std::int64_t first, std::int64_t count, double otherwise) {
    if (!x.defined()) {
      std::fill_n(values_.data(), count, otherwise);
      return;
    }
    with_floating(x.dtype(), [&]<class T>() {
      const T* from = x.data<T>() + first;
      for (std::int64_t k = 0; k < count; ++k) {
        values_[static_cast<std::size_t>(k)] =
            static_cast<double>(static_cast<functor::computed<T>>(from[k]));
      }
    });
  }
  double operator[](std::int64_t k) const { return values_[static_cast<std::size_t>(k)]; }

 private:
  ChannelsOwn<double> values_;
};
// And back, where there is a tensor.
inline void set_numbers(const Tensor& x, std::int64_t first, const double* values,
                        std::int64_t count) {
  if (!x.defined()) return;
  with_floating(x.dtype(), [&]<class T>() {
    T* to = x.data<T>() + first;
    for (std::int64_t k = 0; k < count; ++k) {
      to[k] = static_cast<T>(static_cast<functor::computed<T>>(values[k]));
    }
  });
}

// y = scale x + shift.
struct ChannelMap {
  double scale, shift;
};
class ChannelMaps {
 public:
  ChannelMaps(std::int64_t first, std::int64_t count, const Tensor& mean, const Tensor& variance,
              const Tensor& weight, const Tensor& bias, double eps)
      : mean_(mean, first, count, 0),
        variance_(variance, first, count, 0),
        weight_(weight, first, count, 1),
        bias_(bias, first, count, 0),
        eps_(eps) {}
  ChannelMap operator[](std::int64_t k) const {
    const double scale = weight_[k] / std::sqrt(variance_[k] + eps_);
    return {scale, bias_[k] - mean_[k] * scale};
  }

 private:
  ChannelNumbers mean_, variance_, weight_, bias_;
  double eps_;
};

// dx = scale dy + slope x + shift, from the sums over `count` elements of dy ("plain") and of dy n
// ("normal"), n = (x - centre) inverse: weight inverse (dy - mean(dy) - n mean(dy n)). count = 0:
// centre and inverse are no functions of x, so that it is weight inverse dy.
struct ChannelGradient {
  double scale, slope, shift;
  ChannelGradient(double centre, double inverse, double weight, double plain, double normal,
                  double count)
      : scale(inverse * weight),
        slope(count > 0 ? -scale * inverse * normal / count : 0),
        shift(count > 0 ? -slope * centre - scale * plain / count : 0) {}
};

// Of the channels of a block, from what they are normalised with.
class ChannelGradients {
 public:
  ChannelGradients(std::int64_t first, std::int64_t count, const Tensor& mean,
                   const Tensor& variance, const Tensor& weight, double eps)
      : mean_(mean, first, count, 0), weight_(weight, first, count, 1) {
    const ChannelNumbers variances(variance, first, count, 0);
    for (std::int64_t k = 0; k < count; ++k) {
      inverse_[static_cast<std::size_t>(k)] = 1 / std::sqrt(variances[k] + eps);
    }
  }
  double mean(std::int64_t k) const { return mean_[k]; }
  double inverse(std::int64_t k) const { return inverse_[static_cast<std::size_t>(k)]; }
  ChannelGradient of(std::int64_t k, double plain, double normal, double count) const {
    return {mean(k), inverse(k), weight_[k], plain, normal, count};
  }

 private:
  ChannelNumbers mean_, weight_;
  ChannelsOwn<double> inverse_;
};

// The same over parts of which merge_statistics and a sum have told.
class MergedGradients {
 public:
  MergedGradients(std::int64_t first, std::int64_t count, const Tensor& merged, const Tensor& sums,
                  const Tensor& weight, double eps)
      : own_(first, count, merged, merged.detach({sums.size(1)}, sums.size(1)), weight, eps),
        plain_(sums, first, count, 0),
        normal_(sums, sums.size(1) + first, count, 0),
        count_(merged, 3 * sums.size(1), 1, 1) {}
  ChannelGradient operator[](std::int64_t k) const {
    return own_.of(k, plain_[k], normal_[k], count_[0]);
  }

 private:
  ChannelGradients own_;
  ChannelNumbers plain_, normal_, count_;
};

}  // namespace peal::cpu
