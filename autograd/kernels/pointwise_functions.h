// SPDX-License-Identifier: Apache-2.0
// The functions of one element and their slopes (pointwise.def), as PointwiseFunction<op>, for the
// host and for CUDA alike. M has the exponentials that they are made of: Library's are the standard
// library's; the CPU's loops have their own for f32, which become vectors (cpu/loops_math.h). All
// are forced inline, for the reason that functors.h gives. Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/special_functions.h>
#include <peal/autograd/kernels/table.h>

#include <cmath>

namespace peal::functor {

struct Library {
  template <class C>
  static PEAL_ELEMENT C exp(C x) {
    return std::exp(x);
  }
  template <class C>
  static PEAL_ELEMENT C expm1(C x) {
    return std::expm1(x);
  }
  template <class C>
  static PEAL_ELEMENT C tanh(C x) {
    return std::tanh(x);
  }
  // For x in [0, 1].
  template <class C>
  static PEAL_ELEMENT C log1p(C x) {
    return std::log1p(x);
  }
};

template <class C>
PEAL_ELEMENT C sign_of(C x) {
  return static_cast<C>((x > C(0)) - (x < C(0)));
}

// NaN passes; where low > high all become high.
template <class C>
PEAL_ELEMENT C between(C x, C low, C high) {
  const C above = x < low ? low : x;
  return above > high ? high : above;
}

template <class M, class C>
PEAL_ELEMENT C logistic(C x) {
  return C(1) / (C(1) + M::exp(-x));
}

// log(1 + e^x), with no overflow.
template <class M, class C>
PEAL_ELEMENT C soft_relu(C x) {
  return (x > C(0) ? x : C(0)) + M::log1p(M::exp(x > C(0) ? -x : x));
}

// The slope of erf.
template <class C>
PEAL_ELEMENT C bell(C x) {
  return C(1.1283791670955126) * std::exp(-x * x);
}

// That a normal number is below x, and its density there.
template <class C>
PEAL_ELEMENT C normal_distribution(C x) {
  return C(0.5) * std::erfc(-x * C(0.7071067811865476));
}
template <class C>
PEAL_ELEMENT C gelu_slope(C x) {
  return normal_distribution(x) + x * C(0.3989422804014327) * std::exp(C(-0.5) * x * x);
}

template <class C>
inline constexpr C gelu_root = C(0.7978845608028654);  // sqrt(2 / pi)
template <class C>
PEAL_ELEMENT C gelu_tangent(C x) {
  return std::tanh(gelu_root<C> * (x + C(0.044715) * x * x * x));
}
template <class C>
PEAL_ELEMENT C gelu_tanh_slope(C x) {
  const C u = gelu_tangent(x);
  return C(0.5) * (C(1) + u) +
         C(0.5) * x * (C(1) - u * u) * gelu_root<C> * (C(1) + C(3 * 0.044715) * x * x);
}

template <class M, class C>
PEAL_ELEMENT C silu_slope(C x) {
  const C share = logistic<M>(x);
  return share * (C(1) + x * (C(1) - share));
}

// tanh(log(1 + e^x)) of one exponential, which is 1 to the last bit from 20 on.
template <class C>
struct MishShare {
  C power, over, share;  // e^x, and 2 over the denominator
};
template <class M, class C>
PEAL_ELEMENT MishShare<C> mish_share(C x) {
  const C power = M::exp(x > C(20) ? C(20) : x), n = power * (power + C(2));
  return {power, C(2) / (n + C(2)), n / (n + C(2))};
}
template <class M, class C>
PEAL_ELEMENT C mish_slope(C x) {
  const MishShare<C> at = mish_share<M>(x);
  // Beyond 20 the rest is nothing, and the bounded power does not say so.
  return at.share + (x > C(20) ? C(0) : x * at.power * (at.power + C(1)) * at.over * at.over);
}

// Klambauer et al., "Self-normalizing neural networks", 2017.
template <class C>
inline constexpr C selu_alpha = C(1.6732632423543772848170429916717);
template <class C>
inline constexpr C selu_scale = C(1.0507009873554804934193349852946);

template <class C>
PEAL_ELEMENT C hardswish_slope(C x) {
  return x <= C(-3) ? C(0) : x >= C(3) ? C(1) : x / C(3) + C(0.5);
}

// A function of f64 (special_functions.h) in the type that is computed in.
template <class C>
PEAL_ELEMENT C rounded(double y) {
  return static_cast<C>(y);
}

template <Pointwise op>
struct PointwiseFunction;

#define POINTWISE(name, kept, of_x, of_kept)                                       \
  template <>                                                                      \
  struct PointwiseFunction<Pointwise::name> {                                      \
    template <class M, class C>                                                    \
    static PEAL_ELEMENT C value(C x, [[maybe_unused]] C s, [[maybe_unused]] C t) { \
      return of_x;                                                                 \
    }                                                                              \
    template <class M, class C>                                                    \
    static PEAL_ELEMENT C slope([[maybe_unused]] C kept, [[maybe_unused]] C s,     \
                                [[maybe_unused]] C t) {                            \
      return of_kept;                                                              \
    }                                                                              \
  };
#include <peal/autograd/kernels/pointwise.def>

}  // namespace peal::functor
