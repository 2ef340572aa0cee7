// SPDX-License-Identifier: Apache-2.0
// Arithmetic on one element. What lies in bf16 is computed in f32, a strip at a time. Part of
// loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/functors.h>

#include <type_traits>

namespace peal::cpu::PEAL_LEVEL {
namespace {

template <class T, class F>
void binary_loop(F f, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n) {
  using Real = functor::computed<T>;
  switch (repeat) {
    case Repeat::none:
      return in_strips(out, n, [=](std::int64_t i) { return f(Real(a[i]), Real(b[i])); });
    case Repeat::left: {
      const Real left = *a;
      return in_strips(out, n, [=](std::int64_t i) { return f(left, Real(b[i])); });
    }
    case Repeat::right: {
      const Real right = *b;
      return in_strips(out, n, [=](std::int64_t i) { return f(Real(a[i]), right); });
    }
  }
}

// Of bf16 relu keeps the bits or makes them 0, so that nothing is widened: x <= 0 where the sign is
// set, or nothing is, and x is no NaN.
PEAL_ELEMENT bool at_most_zero(BFloat16 x) {
  constexpr int infinity = 0x7f80;
  return static_cast<std::int16_t>(x.bits) <= 0 && (x.bits & 0x7fff) <= infinity;
}
void relu_bits(BFloat16* out, const BFloat16* x, const BFloat16* kept, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    out[i].bits = at_most_zero(x[i]) ? std::uint16_t{0} : kept[i].bits;
  }
}

template <class T>
void binary(Binary op, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (op == Binary::relu_backward && repeat == Repeat::none) return relu_bits(out, b, a, n);
  }
  switch (op) {
    case Binary::add:
      return binary_loop(functor::Add{}, repeat, out, a, b, n);
    case Binary::sub:
      return binary_loop(functor::Sub{}, repeat, out, a, b, n);
    case Binary::mul:
      return binary_loop(functor::Mul{}, repeat, out, a, b, n);
    case Binary::div:
      if constexpr (std::is_floating_point_v<functor::computed<T>>) {
        return binary_loop(functor::Div{}, repeat, out, a, b, n);
      }
      return;
    case Binary::relu_backward:
      return binary_loop(functor::ReluBackward{}, repeat, out, a, b, n);
  }
}

template <class T, class F>
void unary_loop(F f, T* out, const T* x, std::int64_t n) {
  using Real = functor::computed<T>;
  in_strips(out, n, [=](std::int64_t i) { return f(Real(x[i])); });
}

template <class T>
void unary(Unary op, T* out, const T* x, double s, std::int64_t n) {
  using Real = functor::computed<T>;
  const Real scalar = static_cast<Real>(s);
  switch (op) {
    case Unary::add_scalar:
      return unary_loop(functor::AddScalar<Real>{scalar}, out, x, n);
    case Unary::mul_scalar:
      return unary_loop(functor::MulScalar<Real>{scalar}, out, x, n);
    case Unary::div_scalar:
      if constexpr (std::is_floating_point_v<functor::computed<T>>) {
        return unary_loop(functor::DivScalar<Real>{scalar}, out, x, n);
      }
      return;
    case Unary::relu:
      if constexpr (std::is_same_v<T, BFloat16>) return relu_bits(out, x, x, n);
      return unary_loop(functor::Relu<Real>{scalar}, out, x, n);
  }
}

template <class T>
void axpy(T* x, const T* y, double alpha, std::int64_t n) {
  using Real = functor::computed<T>;
  const Real scale = static_cast<Real>(alpha);
  in_strips(x, n,
            [=](std::int64_t i) { return static_cast<Real>(Real(x[i]) + scale * Real(y[i])); });
}

template <class T>
void fill(T* out, double value, std::int64_t n) {
  const T element = static_cast<T>(static_cast<functor::computed<T>>(value));
  for (std::int64_t i = 0; i < n; ++i) out[i] = element;
}

template <class T>
constexpr Loops<T> loops_here = {
    .binary = binary<T>, .unary = unary<T>, .axpy = axpy<T>, .fill = fill<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
