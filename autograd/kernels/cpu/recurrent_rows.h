// SPDX-License-Identifier: Apache-2.0
// One sequence's elements of a recurrent step (recurrent_step.h), those of its gates n apart. All
// forced inline: f32 is compiled at every vector level (loops_recurrent.h), f64 once. No two arrays
// overlap. Thread safety: as of the arrays.
#pragma once

#include <peal/autograd/kernels/recurrent_step.h>

#include <cstdint>

namespace peal::cpu {

template <class Math, class T>
PEAL_ELEMENT void lstm_row(T* gates, const T* before, T* cell, T* h, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    functor::LstmGates<T> g{gates[i], gates[n + i], gates[2 * n + i], gates[3 * n + i]};
    T made;
    h[i] = functor::lstm_step<Math>(g, before[i], made);
    cell[i] = made;
    gates[i] = g.input;
    gates[n + i] = g.forget;
    gates[2 * n + i] = g.fresh;
    gates[3 * n + i] = g.output;
  }
}

template <class Math, class T>
PEAL_ELEMENT void lstm_row_backward(T* dgates, T* dc, const T* dh, const T* gates, const T* before,
                                    const T* cell, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const functor::LstmGates<T> g{gates[i], gates[n + i], gates[2 * n + i], gates[3 * n + i]};
    T rest = dc[i];
    const functor::LstmGates<T> d = functor::lstm_slope<Math>(g, before[i], cell[i], dh[i], rest);
    dc[i] = rest;
    dgates[i] = d.input;
    dgates[n + i] = d.forget;
    dgates[2 * n + i] = d.fresh;
    dgates[3 * n + i] = d.output;
  }
}

template <class Math, class T>
PEAL_ELEMENT void gru_row(T* gates, T* inner, const T* products, const T* before, T* h,
                          std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    functor::GruGates<T> g{gates[i], gates[n + i], gates[2 * n + i]};
    const functor::GruGates<T> p{products[i], products[n + i], products[2 * n + i]};
    h[i] = functor::gru_step<Math>(g, p, before[i]);
    inner[i] = p.fresh;
    gates[i] = g.reset;
    gates[n + i] = g.update;
    gates[2 * n + i] = g.fresh;
  }
}

template <class T>
PEAL_ELEMENT void gru_row_backward(T* dgates, T* dproducts, T* dh, const T* gates, const T* inner,
                                   const T* before, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const functor::GruGates<T> g{gates[i], gates[n + i], gates[2 * n + i]};
    T rest = dh[i];
    const functor::GruGates<T> d = functor::gru_slope(g, inner[i], before[i], rest);
    dh[i] = rest;
    dgates[i] = d.reset;
    dgates[n + i] = d.update;
    dgates[2 * n + i] = d.fresh;
    dproducts[i] = d.reset;
    dproducts[n + i] = d.update;
    dproducts[2 * n + i] = d.fresh * g.reset;
  }
}

}  // namespace peal::cpu
