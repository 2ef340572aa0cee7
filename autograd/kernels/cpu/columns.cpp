// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/cpu/columns.h>
#include <peal/autograd/kernels/cpu/planes.h>

namespace peal::cpu {

#define PEAL_COLUMNS_OF(level)                                                     \
  namespace level {                                                                \
  const ColumnLoops<float>& column_loops_f32();                                    \
  const ColumnLoops<double>& column_loops_f64();                                   \
  void column_sums_bf16(double* total, const BFloat16* x, const Columns& columns); \
  const PlaneLoops<float>& plane_loops_f32();                                      \
  const PlaneLoops<double>& plane_loops_f64();                                     \
  const PlaneLoops<BFloat16>& plane_loops_bf16();                                  \
  }
PEAL_COLUMNS_OF(baseline)
#if defined(__x86_64__)
PEAL_COLUMNS_OF(avx2)
PEAL_COLUMNS_OF(avx512)
namespace avx512bf16 {  // of bf16 alone, and no level by itself
const PlaneLoops<BFloat16>& plane_loops_bf16();
}
#endif
#undef PEAL_COLUMNS_OF

#if defined(__x86_64__)
#define PEAL_BY_LEVEL(loops, ...)        \
  switch (current_level()) {             \
    case Level::avx512:                  \
      return avx512::loops(__VA_ARGS__); \
    case Level::avx2:                    \
      return avx2::loops(__VA_ARGS__);   \
    case Level::baseline:                \
      break;                             \
  }                                      \
  return baseline::loops(__VA_ARGS__)
#else
#define PEAL_BY_LEVEL(loops, ...) return baseline::loops(__VA_ARGS__)
#endif

template <>
const ColumnLoops<float>& column_loops<float>() {
  PEAL_BY_LEVEL(column_loops_f32);
}
template <>
const ColumnLoops<double>& column_loops<double>() {
  PEAL_BY_LEVEL(column_loops_f64);
}
void sum_columns(double* total, const BFloat16* x, const Columns& columns) {
  PEAL_BY_LEVEL(column_sums_bf16, total, x, columns);
}
template <>
const PlaneLoops<float>& plane_loops<float>() {
  PEAL_BY_LEVEL(plane_loops_f32);
}
template <>
const PlaneLoops<double>& plane_loops<double>() {
  PEAL_BY_LEVEL(plane_loops_f64);
}
// With the CPU's own rounding to bf16 where it has one, at the level that it belongs to.
template <>
const PlaneLoops<BFloat16>& plane_loops<BFloat16>() {
#if defined(__x86_64__)
  static const bool rounds =
      current_level() == Level::avx512 && __builtin_cpu_supports("avx512bf16") != 0;
  if (rounds) return avx512bf16::plane_loops_bf16();
#endif
  PEAL_BY_LEVEL(plane_loops_bf16);
}
#undef PEAL_BY_LEVEL

}  // namespace peal::cpu
