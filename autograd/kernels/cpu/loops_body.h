// SPDX-License-Identifier: Apache-2.0
// The loops of loops.h, in the namespace PEAL_LEVEL. This file is compiled with several instruction
// sets, so nothing in it may have a linker symbol that another file shares: functors are forced
// inline, no function of the standard library is called, and everything else is in a namespace of
// the level's own (a test looks at the symbols).
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_elementwise.h>
#include <peal/autograd/kernels/cpu/loops_masked.h>
#include <peal/autograd/kernels/cpu/loops_math.h>
#include <peal/autograd/kernels/cpu/loops_norm.h>
#include <peal/autograd/kernels/cpu/loops_product.h>
#include <peal/autograd/kernels/cpu/loops_recurrent.h>
#include <peal/autograd/kernels/cpu/loops_softmax.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/rules.h>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// Blocks of 1024 are summed in 64 lanes of T, blocks in double: fast, and as exact as pairwise.
template <class T>
double sum(const T* x, std::int64_t n) {
  constexpr std::int64_t wide = lanes<T>;
  constexpr int all = 64, vectors = all / wide;
  double total = 0;
  std::int64_t i = 0;
  while (n - i >= all) {
    Vector<T> part[vectors] = {}, value;
    const std::int64_t left = (n - i) / all, rounds = left < 16 ? left : 16;
    for (std::int64_t round = 0; round < rounds; ++round, i += all) {
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) {
        load(value, x + i + v * wide);
        part[v] += value;
      }
    }
#pragma GCC unroll 8
    for (int half = vectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int v = 0; v < half; ++v) part[v] += part[v + half];
    }
    total += static_cast<double>(sum_of_lanes<T>(part[0]));
  }
  for (; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

template <class T>
void add_to_doubles(double* total, const T* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) total[i] += static_cast<double>(x[i]);
}

// In whole vectors, of which the last may overlap the one before.
template <class T>
T max(const T* x, std::int64_t n) {
  constexpr std::int64_t wide = lanes<T>;
  if (n < wide) {
    T largest = x[0];
    for (std::int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
  }
  Vector<T> most, other, value;
  load(most, x + n - wide);
  other = most;
  std::int64_t i = 0;
  for (; n - i >= 2 * wide; i += 2 * wide) {
    load(value, x + i);
    most = value > most ? value : most;
    load(value, x + i + wide);
    other = value > other ? value : other;
  }
  if (n - i >= wide) {
    load(value, x + i);
    most = value > most ? value : most;
  }
  most = other > most ? other : most;
  return largest_lane<T>(most)[0];
}

template <class T>
void sgd(T* __restrict p, const T* __restrict g, T* __restrict buffer, const SgdStep& options,
         std::int64_t n) {
  const functor::Sgd<T> f(options);
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = f.plain(p[i], g[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) p[i] = f.with_momentum(p[i], g[i], buffer[i]);
  }
}

template <class T>
void adam(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
          const AdamStep& options, std::int64_t n) {
  const functor::Adam<T> f(options);
  for (std::int64_t i = 0; i < n; ++i) p[i] = f(p[i], g[i], m[i], v[i]);
}

template <class T>
void rule_step(T* __restrict p, const T* __restrict g, T* __restrict a, T* __restrict b,
               T* __restrict c, const RuleStep& options, std::int64_t n) {
  const functor::Rules<T> f(options);
  functor::with_rule(options.rule, [&]<Rule which>() {
    for (std::int64_t i = 0; i < n; ++i) {
      T none{};
      if constexpr (states_of(which) == 1) {
        p[i] = f.template step<which>(p[i], g[i], a[i], none, none);
      } else if constexpr (states_of(which) == 2) {
        p[i] = f.template step<which>(p[i], g[i], a[i], b[i], none);
      } else {
        p[i] = f.template step<which>(p[i], g[i], a[i], b[i], c[i]);
      }
    }
  });
}

template <class T>
constexpr RealLoops<T> real_loops_here = {.sum = sum<T>,
                                          .add_to_doubles = add_to_doubles<T>,
                                          .max = max<T>,
                                          .sgd = sgd<T>,
                                          .adam = adam<T>,
                                          .rule_step = rule_step<T>};

}  // namespace

template <class T>
const Loops<T>& all_loops() {
  return loops_here<T>;
}
template <class T>
const MaskedLoops<T>& all_masked_loops() {
  return masked_loops_here<T>;
}
template <class T>
const PointwiseLoops<T>& all_pointwise_loops() {
  return pointwise_loops_here<T>;
}
template <class T>
const RealLoops<T>& all_real_loops() {
  return real_loops_here<T>;
}

template <class T>
const NormLoops<T>& all_norm_loops() {
  return norm_loops_here<T>;
}

template <class T>
const ProductLoops<T>& all_product_loops() {
  return product_loops_here<T>;
}

template <class T>
const WidthLoops<T>& all_width_loops() {
  return width_loops_here<T>;
}

template const WidthLoops<Half>& all_width_loops<Half>();
template const WidthLoops<BFloat16>& all_width_loops<BFloat16>();
template const ProductLoops<float>& all_product_loops<float>();
template const ProductLoops<double>& all_product_loops<double>();
template const NormLoops<float>& all_norm_loops<float>();
template const NormLoops<double>& all_norm_loops<double>();
template const Loops<float>& all_loops<float>();
template const Loops<double>& all_loops<double>();
template const Loops<BFloat16>& all_loops<BFloat16>();
template const MaskedLoops<float>& all_masked_loops<float>();
template const MaskedLoops<double>& all_masked_loops<double>();
template const MaskedLoops<BFloat16>& all_masked_loops<BFloat16>();
template const PointwiseLoops<float>& all_pointwise_loops<float>();
template const PointwiseLoops<BFloat16>& all_pointwise_loops<BFloat16>();
template const RealLoops<float>& all_real_loops<float>();
template const RealLoops<double>& all_real_loops<double>();
#ifdef PEAL_ALL_DTYPES
template const Loops<std::int32_t>& all_loops<std::int32_t>();
template const Loops<std::int64_t>& all_loops<std::int64_t>();
template const Loops<std::uint8_t>& all_loops<std::uint8_t>();
template const Loops<std::int8_t>& all_loops<std::int8_t>();
#endif

}  // namespace peal::cpu::PEAL_LEVEL
