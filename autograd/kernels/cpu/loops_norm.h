// SPDX-License-Identifier: Apache-2.0
// Sums and affine maps for normalisations, and distances of rows. Sums go over blocks of 1024 in
// lanes of T, the blocks in double. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/functors.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

constexpr std::int64_t norm_block = 1024;

template <class T, int many, class Term>
PEAL_ELEMENT void blocked_sums(double* sums, const Term& term, std::int64_t n) {
  for (int j = 0; j < many; ++j) sums[j] = 0;
  for (std::int64_t begin = 0; begin < n; begin += norm_block) {
    TermSums<T, many> part;
    part.add(term, begin, n - begin < norm_block ? n : begin + norm_block);
    for (int j = 0; j < many; ++j) sums[j] += part.sum(j);
  }
}

template <class T>
struct SquareTerm {
  const T* x;
  T mean;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V value;
    load(value, x + i);
    value -= mean;
    sums[0] += value * value;
  }
};
template <class T>
double squares(const T* x, double mean, std::int64_t n) {
  double sum;
  blocked_sums<T, 1>(&sum, SquareTerm<T>{x, static_cast<T>(mean)}, n);
  return sum;
}

template <class T>
struct DotTerm {
  const T *a, *b;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V left, right;
    load(left, a + i);
    load(right, b + i);
    sums[0] += left * right;
  }
};
template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double sum;
  blocked_sums<T, 1>(&sum, DotTerm<T>{a, b}, n);
  return sum;
}

template <class T>
struct AwayTerm {
  const T *a, *b;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V left, right;
    load(left, a + i);
    load(right, b + i);
    sums[0] += (left - right) * (left - right);
  }
};
template <class T>
void distances(T* out, const T* a, const T* rows, std::int64_t count, std::int64_t n) {
  for (std::int64_t i = 0; i < count; ++i) {
    double sum;
    blocked_sums<T, 1>(&sum, AwayTerm<T>{a, rows + i * n}, n);
    out[i] = static_cast<T>(__builtin_sqrt(sum));
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
struct WeightedMomentsTerm {
  const T *dy, *w, *x;
  T mean;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V slope, value;
    load(slope, dy + i);
    load(value, x + i);
    if constexpr (weighted) {
      V weight;
      load(weight, w + i);
      slope *= weight;
    }
    sums[0] += slope;
    sums[1] += slope * (value - mean);
  }
};
template <class T>
void moments(const T* dy, const T* w, const T* x, double mean, double* sums, std::int64_t n) {
  const T centre = static_cast<T>(mean);
  if (w != nullptr) {
    blocked_sums<T, 2>(sums, WeightedMomentsTerm<T, true>{dy, w, x, centre}, n);
  } else {
    blocked_sums<T, 2>(sums, WeightedMomentsTerm<T, false>{dy, w, x, centre}, n);
  }
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
