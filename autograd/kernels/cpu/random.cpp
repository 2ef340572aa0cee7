// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/wide_room.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>
#include <numbers>

namespace peal::cpu {

// fma keeps the bits equal on devices that fuse and on those that don't.
bool uniform(const Tensor& out, RandomRange words, double low, double high) {
  return with_floating(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    parallel_for(out.numel(), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double u = words.uniform(static_cast<std::uint64_t>(i));
        const T value =
            static_cast<T>(static_cast<functor::computed<T>>(std::fma(high - low, u, low)));
        to[i] = static_cast<double>(value) < high
                    ? value
                    : static_cast<T>(static_cast<functor::computed<T>>(low));
      }
    });
  });
}

bool normal(const Tensor& out, RandomRange words) {
  return with_floating(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const std::int64_t n = out.numel();
    parallel_for((n + 1) / 2, 32, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        const auto at = static_cast<std::uint64_t>(2 * pair);
        // 1 - u is in (0, 1], so the logarithm is finite.
        const double radius = std::sqrt(-2 * std::log(1.0 - words.uniform(at)));
        const double angle = 2 * std::numbers::pi * words.uniform(at + 1);
        to[2 * pair] = static_cast<T>(static_cast<functor::computed<T>>(radius * std::cos(angle)));
        if (2 * pair + 1 < n) {
          to[2 * pair + 1] =
              static_cast<T>(static_cast<functor::computed<T>>(radius * std::sin(angle)));
        }
      }
    });
  });
}

bool dropout(const Tensor& y, const Tensor& mask, const Tensor& x, RandomRange words,
             std::uint32_t threshold, double scale) {
  return with_floating(x.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    T* to = y.data<T>();
    const T* from = x.data<T>();
    std::uint8_t* kept = mask.data<std::uint8_t>();
    parallel_for(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (!std::is_same_v<T, Half>) {
        return masked_loops<T>().dropout(to + begin, kept + begin, from + begin, words, begin,
                                         threshold, scale, end - begin);
      }
      const WideRoom<T> room(room_elements), result(room_elements);
      each_room<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        const Real* in = room.read(from + at, n);
        result.write(to + at, n, [&](Real* out) {
          masked_loops<Real>().dropout(out, kept + at, in, words, at, threshold, scale, n);
        });
      });
    });
  });
}

bool dropout_backward(const Tensor& dx, const Tensor& dy, const Tensor& mask, double scale) {
  return with_floating(dx.dtype(), [&]<class T>() {
    using Real = typename WideRoom<T>::Real;
    T* to = dx.data<T>();
    const T* from = dy.data<T>();
    const std::uint8_t* kept = mask.data<std::uint8_t>();
    parallel_for(dx.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (!std::is_same_v<T, Half>) {
        return masked_loops<T>().dropout_backward(to + begin, from + begin, kept + begin, scale,
                                                  end - begin);
      }
      const WideRoom<T> room(room_elements);
      each_room<T>(begin, end, [&](std::int64_t at, std::int64_t n) {
        const Real* in = room.read(from + at, n);
        room.write(to + at, n, [&](Real* out) {
          masked_loops<Real>().dropout_backward(out, in, kept + at, scale, n);
        });
      });
    });
  });
}

}  // namespace peal::cpu
