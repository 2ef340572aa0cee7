// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/rounding.h>

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

#if defined(__x86_64__)
namespace {

// Those of AVX-512, with the CPU's own rounding where it has one.
template <class T>
const WidthLoops<T>& widest_width_loops() {
  static const WidthLoops<T> widest = [] {
    WidthLoops<T> all = avx512::all_width_loops<T>();
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (__builtin_cpu_supports("avx512bf16")) all.narrow = avx512bf16::round_to_bf16;
    }
    return all;
  }();
  return widest;
}

}  // namespace
#endif

template <class T>
const WidthLoops<T>& width_loops(Level level) {
#if defined(__x86_64__)
  if (level == Level::avx512) return widest_width_loops<T>();
  if (level == Level::avx2) return avx2::all_width_loops<T>();
#endif
  return baseline::all_width_loops<T>();
}

template <class T>
const WidthLoops<T>& width_loops() {
  static const WidthLoops<T>& chosen = width_loops<T>(current_level());
  return chosen;
}

template <class T>
const Loops<T>& narrow_loops(Level level);  // loops_narrow.cpp

template <class T>
const Loops<T>& loops(Level level) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
#if defined(__x86_64__)
    if (level == Level::avx512) return avx512::all_loops<T>();
    if (level == Level::avx2) return avx2::all_loops<T>();
#endif
  }
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return narrow_loops<T>(level);
  } else {
    return baseline::all_loops<T>();
  }
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
