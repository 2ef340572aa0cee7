// SPDX-License-Identifier: Apache-2.0
// Sums and affine maps for normalisations, and distances of rows. Sums go over blocks of 1024 in
// lanes of T, the blocks in double. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/functors.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

constexpr std::int64_t norm_block = 1024;

template <class T, class F>
PEAL_ELEMENT double blocked_sum(std::int64_t n, F f) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += norm_block) {
    const std::int64_t end = n - begin < norm_block ? n : begin + norm_block;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += f(i);
    total += static_cast<double>(part);
  }
  return total;
}

template <class T>
struct SquareTerm {
  const T* x;
  T mean;
  PEAL_ELEMENT T operator()(std::int64_t i) const { return (x[i] - mean) * (x[i] - mean); }
};
template <class T>
double squares(const T* x, double mean, std::int64_t n) {
  return blocked_sum<T>(n, SquareTerm<T>{x, static_cast<T>(mean)});
}

template <class T>
struct DotTerm {
  const T *a, *b;
  PEAL_ELEMENT T operator()(std::int64_t i) const { return a[i] * b[i]; }
};
template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  return blocked_sum<T>(n, DotTerm<T>{a, b});
}

template <class T>
struct AwayTerm {
  const T *a, *b;
  PEAL_ELEMENT T operator()(std::int64_t i) const { return (a[i] - b[i]) * (a[i] - b[i]); }
};
template <class T>
void distances(T* out, const T* a, const T* rows, std::int64_t count, std::int64_t n) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(__builtin_sqrt(blocked_sum<T>(n, AwayTerm<T>{a, rows + i * n})));
  }
}
template <class T>
void distances_backward(T* __restrict da, T* __restrict drows, const T* dout, const T* out,
                        const T* a, const T* rows, std::int64_t count, std::int64_t n,
                        std::int64_t step) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T slope = out[i] == T(0) ? T(0) : dout[i] / out[i];
    const T* row = rows + i * step;
    T* drow = drows + i * step;
#pragma omp simd
    for (std::int64_t k = 0; k < n; ++k) {
      const T pull = slope * (a[k] - row[k]);
      da[k] += pull;
      drow[k] -= pull;
    }
  }
}

template <class T, bool weighted>
PEAL_ELEMENT void moments_of(const T* dy, const T* w, const T* x, T mean, double* sums,
                             std::int64_t n) {
  sums[0] = sums[1] = 0;
  for (std::int64_t begin = 0; begin < n; begin += norm_block) {
    const std::int64_t end = n - begin < norm_block ? n : begin + norm_block;
    T plain = 0, centred = 0;
#pragma omp simd reduction(+ : plain, centred)
    for (std::int64_t i = begin; i < end; ++i) {
      const T a = weighted ? dy[i] * w[i] : dy[i];
      plain += a;
      centred += a * (x[i] - mean);
    }
    sums[0] += static_cast<double>(plain);
    sums[1] += static_cast<double>(centred);
  }
}
template <class T>
void moments(const T* dy, const T* w, const T* x, double mean, double* sums, std::int64_t n) {
  const T centre = static_cast<T>(mean);
  w != nullptr ? moments_of<T, true>(dy, w, x, centre, sums, n)
               : moments_of<T, false>(dy, w, x, centre, sums, n);
}

template <class T>
void normalise(T* y, const T* x, double mean, double inverse, const T* w, const T* b,
               std::int64_t n) {
  const T centre = static_cast<T>(mean), scale = static_cast<T>(inverse);
  if (w != nullptr && b != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - centre) * scale * w[i] + b[i];
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - centre) * scale;
  if (w != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) y[i] *= w[i];
  }
  if (b != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) y[i] += b[i];
  }
}

template <class T>
void combine(T* out, const T* dy, const T* w, const T* x, double p, double q, double r,
             std::int64_t n) {
  const T a = static_cast<T>(p), b = static_cast<T>(q), c = static_cast<T>(r);
  if (w != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = a * (dy[i] * w[i]) + (b * x[i] + c);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = a * dy[i] + (b * x[i] + c);
  }
}

template <class T>
void add_moments(T* __restrict plain, T* __restrict centred, const T* __restrict dy,
                 const T* __restrict x, T mean, T inverse, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    plain[i] += dy[i];
    centred[i] += dy[i] * ((x[i] - mean) * inverse);
  }
}

template <class T>
constexpr NormLoops<T> norm_loops_here = {.squares = squares<T>,
                                          .moments = moments<T>,
                                          .normalise = normalise<T>,
                                          .combine = combine<T>,
                                          .dot = dot<T>,
                                          .distances = distances<T>,
                                          .distances_backward = distances_backward<T>,
                                          .add_moments = add_moments<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
