// SPDX-License-Identifier: Apache-2.0
// The loops of planes.h, in the namespace PEAL_LEVEL. Part of columns_body.h, and under its rule
// about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/cpu/planes.h>
#include <peal/autograd/kernels/functors.h>

namespace peal::cpu::PEAL_LEVEL {
namespace {

constexpr std::int64_t piece_of_plane = 1024;

// A term adds what element i gives to its sums: a vector of elements, or one.
template <class T>
struct PlainTerm {
  const T* x;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V value;
    load(value, x + i);
    sums[0] += value;
  }
};
template <class T>
struct DistanceTerm {
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
struct MomentsTerm {
  const T *dy, *x;
  T mean;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V slope, value;
    load(slope, dy + i);
    load(value, x + i);
    sums[0] += slope;
    sums[1] += slope * (value - mean);
  }
};

// The term's sums over n elements of each image, four vectors at a time, as an addition takes so
// many cycles.
template <class T, int many, class Term>
PEAL_ELEMENT void sum_terms(double* sums, const Term& term, const PlaneBlock& o, std::int64_t n) {
  constexpr std::int64_t wide = lanes<T>;
  Vector<T> parts[4][many] = {};
  T rest[many] = {};
  for (std::int64_t image = 0; image < o.images; ++image) {
    std::int64_t i = image * o.stride;
    const std::int64_t end = i + n;
    for (; i + 4 * wide <= end; i += 4 * wide) {
      for (int u = 0; u < 4; ++u) term.add(parts[u], i + u * wide);
    }
    for (; i + wide <= end; i += wide) term.add(parts[0], i);
    for (; i < end; ++i) term.add(rest, i);
  }
  for (int j = 0; j < many; ++j) {
    const Vector<T> all = (parts[0][j] + parts[1][j]) + (parts[2][j] + parts[3][j]);
    sums[j] = static_cast<double>(rest[j]) + static_cast<double>(sum_of_lanes<T>(all));
  }
}

// Each piece is read twice, from a first-level cache, and what it gives is merged with what came
// before (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979).
template <class T>
void add_statistics(double* mean, double* squares, std::int64_t count, const T* x,
                    const PlaneBlock& o) {
  for (std::int64_t k = 0; k < o.channels; ++k) {
    double before = static_cast<double>(count);
    for (std::int64_t begin = 0; begin < o.size; begin += piece_of_plane) {
      const std::int64_t left = o.size - begin, n = left < piece_of_plane ? left : piece_of_plane;
      const T* const piece = x + k * o.size + begin;
      const double values = static_cast<double>(n * o.images), all = before + values;
      double total, distances;
      sum_terms<T, 1>(&total, PlainTerm<T>{piece}, o, n);
      const double centre = total / values, apart = centre - mean[k];
      sum_terms<T, 1>(&distances, DistanceTerm<T>{piece, static_cast<T>(centre)}, o, n);
      mean[k] += apart * (values / all);
      squares[k] += distances + apart * apart * (before * values / all);
      before = all;
    }
  }
}

template <class T>
void add_moments(double* plain, double* centred, const T* dy, const T* x, const T* mean,
                 const PlaneBlock& o) {
  for (std::int64_t k = 0; k < o.channels; ++k) {
    for (std::int64_t begin = 0; begin < o.size; begin += piece_of_plane) {
      const std::int64_t at = k * o.size + begin, left = o.size - begin;
      double sums[2];
      sum_terms<T, 2>(sums, MomentsTerm<T>{dy + at, x + at, mean[k]}, o,
                      left < piece_of_plane ? left : piece_of_plane);
      plain[k] += sums[0];
      centred[k] += sums[1];
    }
  }
}

template <class T>
void scale_shift_planes(T* y, const T* x, const T* scale, const T* shift, const PlaneBlock& o) {
  for (std::int64_t image = 0; image < o.images; ++image) {
    for (std::int64_t k = 0; k < o.channels; ++k) {
      const T factor = scale[k], summand = shift[k];
      const std::int64_t begin = image * o.stride + k * o.size, end = begin + o.size;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] * factor + summand;
    }
  }
}

template <class T>
void combine_planes(T* out, const T* dy, const T* x, const T* p, const T* q, const T* r,
                    const PlaneBlock& o) {
  for (std::int64_t image = 0; image < o.images; ++image) {
    for (std::int64_t k = 0; k < o.channels; ++k) {
      const T a = p[k], b = q[k], c = r[k];
      const std::int64_t begin = image * o.stride + k * o.size, end = begin + o.size;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) out[i] = a * dy[i] + (b * x[i] + c);
    }
  }
}

template <class T>
constexpr PlaneLoops<T> plane_loops_here = {.add_statistics = add_statistics<T>,
                                            .add_moments = add_moments<T>,
                                            .scale_shift = scale_shift_planes<T>,
                                            .combine = combine_planes<T>};

}  // namespace

const PlaneLoops<float>& plane_loops_f32() { return plane_loops_here<float>; }
const PlaneLoops<double>& plane_loops_f64() { return plane_loops_here<double>; }

}  // namespace peal::cpu::PEAL_LEVEL
