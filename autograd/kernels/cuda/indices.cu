// SPDX-License-Identifier: Apache-2.0
// Looks at indices and classes where they are, so that the host need not wait for them: what is
// out of range is told through the device's fault (core/cuda/fault.h).
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/inside.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {
namespace {

// One block: indices are few beside what they choose.
__global__ void __launch_bounds__(1024)
    check_each(double* counted, const std::int64_t* index, std::int64_t n, std::int64_t limit,
               std::int64_t ignored, Fault* fault) {
  std::int64_t here = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const std::int64_t value = index[i];
    if (value == ignored) continue;
    ++here;
    if (value < 0 || value >= limit) report(fault, FaultKind::index, value, limit);
  }
  here = block_reduce(here, Plus{}, std::int64_t{0});
  if (threadIdx.x == 0 && counted != nullptr) *counted = static_cast<double>(here);
}

}  // namespace

bool check_indices(const Tensor& counted, const Tensor& index, std::int64_t limit,
                   std::int64_t ignored) {
  constexpr int threads = 1024;
  launch(index, 1, threads, check_each, pointer<double>(counted), pointer<std::int64_t>(index),
         index.numel(), limit, ignored, fault_of(index.device()));
  return true;
}

}  // namespace peal::cuda
