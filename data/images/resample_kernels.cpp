// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/data/images/resample_kernels.h>

namespace peal::data {

namespace baseline {
ResampleKernels resample_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
ResampleKernels resample_kernels();
}
namespace avx512 {
ResampleKernels resample_kernels();
}
#endif

ResampleKernels resample_kernels() {
#if defined(__x86_64__)
  const cpu::Level level = cpu::current_level();
  if (level == cpu::Level::avx512) return avx512::resample_kernels();
  if (level == cpu::Level::avx2) return avx2::resample_kernels();
#endif
  return baseline::resample_kernels();
}

}  // namespace peal::data
