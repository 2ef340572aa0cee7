// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/data/pixels.h>

namespace peal::data {

namespace baseline {
PixelKernel pixel_kernel();
RgbKernel rgb_kernel();
}  // namespace baseline
#if defined(__x86_64__)
namespace avx2 {
PixelKernel pixel_kernel();
RgbKernel rgb_kernel();
}  // namespace avx2
namespace avx512 {
PixelKernel pixel_kernel();
RgbKernel rgb_kernel();
}  // namespace avx512
#endif

PixelKernel pixel_kernel() {
#if defined(__x86_64__)
  const cpu::Level level = cpu::current_level();
  if (level == cpu::Level::avx512) return avx512::pixel_kernel();
  if (level == cpu::Level::avx2) return avx2::pixel_kernel();
#endif
  return baseline::pixel_kernel();
}

RgbKernel rgb_kernel() {
#if defined(__x86_64__)
  const cpu::Level level = cpu::current_level();
  if (level == cpu::Level::avx512) return avx512::rgb_kernel();
  if (level == cpu::Level::avx2) return avx2::rgb_kernel();
#endif
  return baseline::rgb_kernel();
}

}  // namespace peal::data
