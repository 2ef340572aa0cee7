// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/cpu/columns.h>
#include <peal/autograd/kernels/cpu/planes.h>

namespace peal::cpu {

#define PEAL_COLUMNS_OF(level)                   \
  namespace level {                              \
  const ColumnLoops<float>& column_loops_f32();  \
  const ColumnLoops<double>& column_loops_f64(); \
  const PlaneLoops<float>& plane_loops_f32();    \
  const PlaneLoops<double>& plane_loops_f64();   \
  }
PEAL_COLUMNS_OF(baseline)
#if defined(__x86_64__)
PEAL_COLUMNS_OF(avx2)
PEAL_COLUMNS_OF(avx512)
#endif
#undef PEAL_COLUMNS_OF

#if defined(__x86_64__)
#define PEAL_BY_LEVEL(loops)  \
  switch (current_level()) {  \
    case Level::avx512:       \
      return avx512::loops(); \
    case Level::avx2:         \
      return avx2::loops();   \
    case Level::baseline:     \
      break;                  \
  }                           \
  return baseline::loops()
#else
#define PEAL_BY_LEVEL(loops) return baseline::loops()
#endif

template <>
const ColumnLoops<float>& column_loops<float>() {
  PEAL_BY_LEVEL(column_loops_f32);
}
template <>
const ColumnLoops<double>& column_loops<double>() {
  PEAL_BY_LEVEL(column_loops_f64);
}
template <>
const PlaneLoops<float>& plane_loops<float>() {
  PEAL_BY_LEVEL(plane_loops_f32);
}
template <>
const PlaneLoops<double>& plane_loops<double>() {
  PEAL_BY_LEVEL(plane_loops_f64);
}
#undef PEAL_BY_LEVEL

}  // namespace peal::cpu
