// SPDX-License-Identifier: Apache-2.0
// The elements of one channel of x [N, C, plane] in runs, as loops of f32 and f64 take them: a
// plane at a time where it lies; of f16 and bf16 what a buffer holds of the channel's planes, one
// behind the other and widened, so that what is computed in f32 never leaves the caches. And what
// normalisation does with a channel, from tensors of one number a channel, in any floating type.
// Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
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

template <class T>
class ChannelRuns {
 public:
  using Real = functor::computed<T>;

  explicit ChannelRuns(const Planes& planes)
      : planes_(planes), length_(widens ? std::min(buffered, planes.count()) : planes.size) {}

  // f(channel, room for a run, room for another) over all channels. A thread takes whole ones, so
  // that sums have one order. Where runs are read where they lie there is no room.
  template <class F>
  void each_channel(F&& f) const {
    const std::int64_t room = widens ? length_ : 0;
    parallel_for(planes_.channels, planes_.count(), [&](std::int64_t begin, std::int64_t end) {
      const auto both = std::make_unique_for_overwrite<Real[]>(static_cast<std::size_t>(2 * room));
      for (std::int64_t c = begin; c < end; ++c) f(c, both.get(), both.get() + room);
    });
  }
  // f(first element, elements) for each run of a channel.
  template <class F>
  void each(F&& f) const {
    for (std::int64_t at = 0; at < planes_.count(); at += length_) {
      f(at, std::min(length_, planes_.count() - at));
    }
  }
  // Whether a channel is one run, so that what was read of it is still there.
  bool one() const { return length_ >= planes_.count(); }

  const Real* read(const T* x, std::int64_t c, std::int64_t at, std::int64_t n, Real* room) const {
    if constexpr (widens) {
      each_piece(c, at, n, [&](std::int64_t from, std::int64_t to, std::int64_t size) {
        width_loops<T>().widen(room + to, x + from, size);
      });
      return room;
    } else {
      return x + place(c, at);
    }
  }
  // Where a run is to be computed that write() then brings to y.
  Real* written(T* y, std::int64_t c, std::int64_t at, Real* room) const {
    if constexpr (widens) {
      return room;
    } else {
      return y + place(c, at);
    }
  }
  void write(T* y, std::int64_t c, std::int64_t at, std::int64_t n, const Real* run) const {
    if constexpr (widens) {
      each_piece(c, at, n, [&](std::int64_t to, std::int64_t from, std::int64_t size) {
        width_loops<T>().narrow(y + to, run + from, size);
      });
    }
  }

 private:
  static constexpr bool widens = !std::is_same_v<T, Real>;
  static constexpr std::int64_t buffered = 32768;  // 128 KiB: two of them fit a second-level cache

  std::int64_t place(std::int64_t c, std::int64_t at) const {
    return (at / planes_.size * planes_.channels + c) * planes_.size + at % planes_.size;
  }
  // f(place in x, place in the run, elements) for what a run has of each plane.
  template <class F>
  void each_piece(std::int64_t c, std::int64_t at, std::int64_t n, F&& f) const {
    for (std::int64_t done = 0; done < n;) {
      const std::int64_t left = planes_.size - (at + done) % planes_.size;
      const std::int64_t size = std::min(left, n - done);
      f(place(c, at + done), done, size);
      done += size;
    }
  }

  Planes planes_;
  std::int64_t length_;  // of a run
};

// Number i, which may not be there.
inline double element(const Tensor& x, std::int64_t i, double otherwise) {
  double value = otherwise;
  if (x.defined()) {
    with_floating(x.dtype(), [&]<class T>() {
      value = static_cast<double>(static_cast<functor::computed<T>>(x.data<T>()[i]));
    });
  }
  return value;
}
inline void set_element(const Tensor& x, std::int64_t i, double value) {
  if (!x.defined()) return;
  with_floating(x.dtype(), [&]<class T>() {
    x.data<T>()[i] = static_cast<T>(static_cast<functor::computed<T>>(value));
  });
}

// y = scale x + shift.
struct ChannelMap {
  double scale, shift;
  ChannelMap(std::int64_t c, const Tensor& mean, const Tensor& variance, const Tensor& weight,
             const Tensor& bias, double eps)
      : scale(element(weight, c, 1) / std::sqrt(element(variance, c, 0) + eps)),
        shift(element(bias, c, 0) - element(mean, c, 0) * scale) {}
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

// The same over parts of which merge_statistics and a sum have told.
inline ChannelGradient merged_gradient(std::int64_t c, const Tensor& merged, const Tensor& sums,
                                       const Tensor& weight, double eps) {
  const std::int64_t channels = sums.size(1);
  const double inverse = 1 / std::sqrt(element(merged, channels + c, 0) + eps);
  return {element(merged, c, 0),          inverse,
          element(weight, c, 1),          element(sums, c, 0),
          element(sums, channels + c, 0), element(merged, 3 * channels, 1)};
}

}  // namespace peal::cpu
