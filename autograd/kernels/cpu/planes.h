// SPDX-License-Identifier: Apache-2.0
// Planes of an array [N, C, plane]: sums over each channel, and maps that are each channel's own,
// several channels at once, since memory is fast only along the way it lies. What normalisation by
// channel is made of. bf16 is widened in registers, and each result rounded once. Sums are in f32
// or f64 over 1024 elements of a plane, and over those in double. Compiled for each vector level.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>

#include <cstdint>

namespace peal::cpu {

// From where a pointer is: `size` elements of each of `channels` planes, one behind the other, and
// the same of more images, `stride` elements apart.
struct PlaneBlock {
  std::int64_t images, stride, channels, size;
  std::int64_t count() const { return images * size; }  // of elements a channel
};

// For float, double and BFloat16. Results a channel overlap nothing.
template <class T>
struct PlaneLoops {
  using Real = functor::computed<T>;

  // The mean of a channel's elements and the sum of (x - mean)^2: given of `count` elements, from
  // then on of these as well.
  void (*add_statistics)(double* mean, double* squares, std::int64_t count, const T* x,
                         const PlaneBlock& planes);
  // total += x, summed
  void (*add_sums)(double* total, const T* x, const PlaneBlock& planes);
  // plain += dy and centred += dy (x - mean), summed
  void (*add_moments)(double* plain, double* centred, const T* dy, const T* x, const Real* mean,
                      const PlaneBlock& planes);
  // y = x scale + shift; y may be x
  void (*scale_shift)(T* y, const T* x, const Real* scale, const Real* shift,
                      const PlaneBlock& planes);
  // out = p dy + (q x + r); out may be dy
  void (*combine)(T* out, const T* dy, const T* x, const Real* p, const Real* q, const Real* r,
                  const PlaneBlock& planes);
};

// Of the current level.
template <class T>
const PlaneLoops<T>& plane_loops();

}  // namespace peal::cpu
