// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/functors.h>

#include <type_traits>

namespace peal::cpu {

#define PEAL_DECLARE_LEVEL(level)                                          \
  namespace level {                                                        \
  const MathLoops& all_math_loops();                                       \
  const RecurrentLoops& all_recurrent_loops();                             \
  template <class T>                                                       \
  const WidthLoops<T>& all_width_loops();                                  \
  template <class T>                                                       \
  const NormLoops<T>& all_norm_loops();                                    \
  extern template const NormLoops<float>& all_norm_loops<float>();         \
  extern template const NormLoops<double>& all_norm_loops<double>();       \
  template <class T>                                                       \
  const ProductLoops<T>& all_product_loops();                              \
  extern template const ProductLoops<float>& all_product_loops<float>();   \
  extern template const ProductLoops<double>& all_product_loops<double>(); \
  template <class T>                                                       \
  const MaskedLoops<T>& all_masked_loops();                                \
  template <class T>                                                       \
  const PointwiseLoops<T>& all_pointwise_loops();                          \
  template <class T>                                                       \
  const Loops<T>& all_loops();                                             \
  template <class T>                                                       \
  const RealLoops<T>& all_real_loops();                                    \
  extern template const Loops<float>& all_loops<float>();                  \
  extern template const Loops<double>& all_loops<double>();                \
  extern template const RealLoops<float>& all_real_loops<float>();         \
  extern template const RealLoops<double>& all_real_loops<double>();       \
  }
PEAL_DECLARE_LEVEL(baseline)
#if defined(__x86_64__)
PEAL_DECLARE_LEVEL(avx2)
PEAL_DECLARE_LEVEL(avx512)
PEAL_DECLARE_LEVEL(avx512bf16)  // of bf16 alone, and no level by itself
#endif
#undef PEAL_DECLARE_LEVEL

const MathLoops& math_loops(Level level) {
#if defined(__x86_64__)
  if (level == Level::avx512) return avx512::all_math_loops();
  if (level == Level::avx2) return avx2::all_math_loops();
#endif
  return baseline::all_math_loops();
}

const MathLoops& math_loops() {
  static const MathLoops& chosen = math_loops(current_level());
  return chosen;
}

const RecurrentLoops& recurrent_loops() {
#if defined(__x86_64__)
  if (current_level() == Level::avx512) return avx512::all_recurrent_loops();
  if (current_level() == Level::avx2) return avx2::all_recurrent_loops();
#endif
  return baseline::all_recurrent_loops();
}

template <class T>
const NormLoops<T>& norm_loops(Level level) {
#if defined(__x86_64__)
  if (level == Level::avx512) return avx512::all_norm_loops<T>();
  if (level == Level::avx2) return avx2::all_norm_loops<T>();
#endif
  return baseline::all_norm_loops<T>();
}

template <class T>
const NormLoops<T>& norm_loops() {
  static const NormLoops<T>& chosen = norm_loops<T>(current_level());
  return chosen;
}

template <class T>
const ProductLoops<T>& product_loops(Level level) {
#if defined(__x86_64__)
  if (level == Level::avx512) return avx512::all_product_loops<T>();
  if (level == Level::avx2) return avx2::all_product_loops<T>();
#endif
  return baseline::all_product_loops<T>();
}

template <class T>
const ProductLoops<T>& product_loops() {
  static const ProductLoops<T>& chosen = product_loops<T>(current_level());
  return chosen;
}

// With the CPU's own rounding to bf16 where it has one, at the level that it belongs to.
#if defined(__x86_64__)
#define PEAL_OF_LEVEL(loops, level)                                            \
  if constexpr (std::is_same_v<T, BFloat16>) {                                 \
    static const bool rounds = __builtin_cpu_supports("avx512bf16") != 0;      \
    if (level == Level::avx512 && rounds) return avx512bf16::all_##loops<T>(); \
  }                                                                            \
  if (level == Level::avx512) return avx512::all_##loops<T>();                 \
  if (level == Level::avx2) return avx2::all_##loops<T>();                     \
  return baseline::all_##loops<T>()
#else
#define PEAL_OF_LEVEL(loops, level) return baseline::all_##loops<T>()
#endif

template <class T>
const WidthLoops<T>& width_loops(Level level) {
  PEAL_OF_LEVEL(width_loops, level);
}

template <class T>
const WidthLoops<T>& width_loops() {
  static const WidthLoops<T>& chosen = width_loops<T>(current_level());
  return chosen;
}

const Loops<Half>& half_loops(Level level);  // loops_half.cpp

template <class T>
const Loops<T>& loops(Level level) {
  if constexpr (std::is_same_v<T, Half>) {
    return half_loops(level);
  } else if constexpr (std::is_floating_point_v<functor::computed<T>>) {
    PEAL_OF_LEVEL(loops, level);
  } else {
    return baseline::all_loops<T>();
  }
}

template <class T>
const MaskedLoops<T>& masked_loops(Level level) {
  PEAL_OF_LEVEL(masked_loops, level);
}

template <class T>
const PointwiseLoops<T>& pointwise_loops(Level level) {
  PEAL_OF_LEVEL(pointwise_loops, level);
}

template <class T>
const MaskedLoops<T>& masked_loops() {
  static const MaskedLoops<T>& chosen = masked_loops<T>(current_level());
  return chosen;
}

template <class T>
const PointwiseLoops<T>& pointwise_loops() {
  static const PointwiseLoops<T>& chosen = pointwise_loops<T>(current_level());
  return chosen;
}

template <class T>
const RealLoops<T>& real_loops(Level level) {
#if defined(__x86_64__)
  if (level == Level::avx512) return avx512::all_real_loops<T>();
  if (level == Level::avx2) return avx2::all_real_loops<T>();
#endif
  return baseline::all_real_loops<T>();
}

template <class T>
const Loops<T>& loops() {
  static const Loops<T>& chosen = loops<T>(current_level());
  return chosen;
}

template <class T>
const RealLoops<T>& real_loops() {
  static const RealLoops<T>& chosen = real_loops<T>(current_level());
  return chosen;
}

#define PEAL_LOOPS(T)                             \
  template const Loops<T>& loops<T>(Level level); \
  template const Loops<T>& loops<T>();
PEAL_LOOPS(float)
PEAL_LOOPS(double)
PEAL_LOOPS(Half)
PEAL_LOOPS(BFloat16)
PEAL_LOOPS(std::int32_t)
PEAL_LOOPS(std::int64_t)
PEAL_LOOPS(std::uint8_t)
PEAL_LOOPS(std::int8_t)
#undef PEAL_LOOPS
#undef PEAL_OF_LEVEL
template const MaskedLoops<float>& masked_loops<float>(Level level);
template const MaskedLoops<double>& masked_loops<double>(Level level);
template const MaskedLoops<BFloat16>& masked_loops<BFloat16>(Level level);
template const MaskedLoops<float>& masked_loops<float>();
template const MaskedLoops<double>& masked_loops<double>();
template const MaskedLoops<BFloat16>& masked_loops<BFloat16>();
template const PointwiseLoops<float>& pointwise_loops<float>(Level level);
template const PointwiseLoops<BFloat16>& pointwise_loops<BFloat16>(Level level);
template const PointwiseLoops<float>& pointwise_loops<float>();
template const PointwiseLoops<BFloat16>& pointwise_loops<BFloat16>();
template const WidthLoops<Half>& width_loops<Half>(Level level);
template const WidthLoops<BFloat16>& width_loops<BFloat16>(Level level);
template const WidthLoops<Half>& width_loops<Half>();
template const WidthLoops<BFloat16>& width_loops<BFloat16>();
template const RealLoops<float>& real_loops<float>(Level level);
template const RealLoops<double>& real_loops<double>(Level level);
template const RealLoops<float>& real_loops<float>();
template const RealLoops<double>& real_loops<double>();
template const NormLoops<float>& norm_loops<float>(Level level);
template const NormLoops<double>& norm_loops<double>(Level level);
template const NormLoops<float>& norm_loops<float>();
template const NormLoops<double>& norm_loops<double>();
template const ProductLoops<float>& product_loops<float>(Level level);
template const ProductLoops<double>& product_loops<double>(Level level);
template const ProductLoops<float>& product_loops<float>();
template const ProductLoops<double>& product_loops<double>();

}  // namespace peal::cpu
