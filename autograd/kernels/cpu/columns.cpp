// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/cpu/columns.h>

namespace peal::cpu {

#define PEAL_COLUMNS_OF(level)                   \
  namespace level {                              \
  const ColumnLoops<float>& column_loops_f32();  \
  const ColumnLoops<double>& column_loops_f64(); \
  }
PEAL_COLUMNS_OF(baseline)
#if defined(__x86_64__)
PEAL_COLUMNS_OF(avx2)
PEAL_COLUMNS_OF(avx512)
#endif
#undef PEAL_COLUMNS_OF

template <>
const ColumnLoops<float>& column_loops<float>() {
#if defined(__x86_64__)
  const Level level = current_level();
  if (level == Level::avx512) return avx512::column_loops_f32();
  if (level == Level::avx2) return avx2::column_loops_f32();
#endif
  return baseline::column_loops_f32();
}

template <>
const ColumnLoops<double>& column_loops<double>() {
#if defined(__x86_64__)
  const Level level = current_level();
  if (level == Level::avx512) return avx512::column_loops_f64();
  if (level == Level::avx2) return avx2::column_loops_f64();
#endif
  return baseline::column_loops_f64();
}

}  // namespace peal::cpu
