// SPDX-License-Identifier: Apache-2.0
// The loops of planes.h, in the namespace PEAL_LEVEL. Part of columns_body.h, and under its rule
// about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/cpu/planes.h>
#include <peal/autograd/kernels/functors.h>

namespace peal::cpu::PEAL_LEVEL {
namespace {

constexpr std::int64_t piece_of_plane = 1024;

// Elements from `from` on as what they are computed in: a vector of them, or one.
template <class V, class T>
PEAL_ELEMENT void load_wide(V& value, const T* from) {
  if constexpr (!std::is_same_v<T, BFloat16>) {
    load(value, from);
  } else if constexpr (sizeof(V) == sizeof(float)) {
    value = *from;
  } else {
    VectorOf<float>::shorts bits;
    load(bits, from);
    value = (V)(__builtin_convertvector(bits, Vector<std::uint32_t>) << 16);
  }
}

// Terms of TermSums.
template <class T>
struct PlainTerm {
  const T* x;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V value;
    load_wide(value, x + i);
    sums[0] += value;
  }
};
template <class T>
struct DistanceTerm {
  const T* x;
  functor::computed<T> mean;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V value;
    load_wide(value, x + i);
    value -= mean;
    sums[0] += value * value;
  }
};
template <class T>
struct MomentsTerm {
  const T *dy, *x;
  functor::computed<T> mean;
  template <class V>
  PEAL_ELEMENT void add(V* sums, std::int64_t i) const {
    V slope, value;
    load_wide(slope, dy + i);
    load_wide(value, x + i);
    sums[0] += slope;
    sums[1] += slope * (value - mean);
  }
};

// The term's sums over n elements of each image.
template <class Real, int many, class Term>
PEAL_ELEMENT void sum_terms(double* sums, const Term& term, const PlaneBlock& o, std::int64_t n) {
  TermSums<Real, many> all;
  for (std::int64_t image = 0; image < o.images; ++image) {
    all.add(term, image * o.stride, image * o.stride + n);
  }
  for (int j = 0; j < many; ++j) sums[j] = all.sum(j);
}

// f(channel, its piece's first element, how many) of each piece of a plane.
template <class F>
PEAL_ELEMENT void each_piece(const PlaneBlock& o, F f) {
  for (std::int64_t k = 0; k < o.channels; ++k) {
    for (std::int64_t begin = 0; begin < o.size; begin += piece_of_plane) {
      const std::int64_t left = o.size - begin;
      f(k, k * o.size + begin, left < piece_of_plane ? left : piece_of_plane);
    }
  }
}

// Each piece is read twice, from a first-level cache, and what it gives is merged with what came
// before (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979).
template <class T>
void add_statistics(double* mean, double* squares, std::int64_t count, const T* x,
                    const PlaneBlock& o) {
  using Real = functor::computed<T>;
  double before = 0;
  each_piece(o, [&](std::int64_t k, std::int64_t at, std::int64_t n) {
    if (at == k * o.size) before = static_cast<double>(count);
    const double values = static_cast<double>(n * o.images), all = before + values;
    double total, distances;
    sum_terms<Real, 1>(&total, PlainTerm<T>{x + at}, o, n);
    const double centre = total / values, apart = centre - mean[k];
    sum_terms<Real, 1>(&distances, DistanceTerm<T>{x + at, static_cast<Real>(centre)}, o, n);
    mean[k] += apart * (values / all);
    squares[k] += distances + apart * apart * (before * values / all);
    before = all;
  });
}

template <class T>
void add_sums(double* total, const T* x, const PlaneBlock& o) {
  each_piece(o, [&](std::int64_t k, std::int64_t at, std::int64_t n) {
    double sum;
    sum_terms<functor::computed<T>, 1>(&sum, PlainTerm<T>{x + at}, o, n);
    total[k] += sum;
  });
}

template <class T>
void add_moments(double* plain, double* centred, const T* dy, const T* x,
                 const functor::computed<T>* mean, const PlaneBlock& o) {
  each_piece(o, [&](std::int64_t k, std::int64_t at, std::int64_t n) {
    double sums[2];
    sum_terms<functor::computed<T>, 2>(sums, MomentsTerm<T>{dy + at, x + at, mean[k]}, o, n);
    plain[k] += sums[0];
    centred[k] += sums[1];
  });
}

template <class T>
void scale_shift_planes(T* y, const T* x, const functor::computed<T>* scale,
                        const functor::computed<T>* shift, const PlaneBlock& o) {
  using Real = functor::computed<T>;
  for (std::int64_t image = 0; image < o.images; ++image) {
    for (std::int64_t k = 0; k < o.channels; ++k) {
      const Real factor = scale[k], summand = shift[k];
      const std::int64_t begin = image * o.stride + k * o.size;
      const T* const from = x + begin;
      in_strips(y + begin, o.size,
                [=](std::int64_t i) { return Real(from[i]) * factor + summand; });
    }
  }
}

template <class T>
void combine_planes(T* out, const T* dy, const T* x, const functor::computed<T>* p,
                    const functor::computed<T>* q, const functor::computed<T>* r,
                    const PlaneBlock& o) {
  using Real = functor::computed<T>;
  for (std::int64_t image = 0; image < o.images; ++image) {
    for (std::int64_t k = 0; k < o.channels; ++k) {
      const Real a = p[k], b = q[k], c = r[k];
      const std::int64_t begin = image * o.stride + k * o.size;
      const T *const slopes = dy + begin, *const values = x + begin;
      in_strips(out + begin, o.size,
                [=](std::int64_t i) { return a * Real(slopes[i]) + (b * Real(values[i]) + c); });
    }
  }
}

template <class T>
constexpr PlaneLoops<T> plane_loops_here = {.add_statistics = add_statistics<T>,
                                            .add_sums = add_sums<T>,
                                            .add_moments = add_moments<T>,
                                            .scale_shift = scale_shift_planes<T>,
                                            .combine = combine_planes<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
