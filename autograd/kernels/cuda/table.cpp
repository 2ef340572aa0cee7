// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/device.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {

const Kernels& table() {
  static const Kernels all = {
      .attention_recomputes = attention_recomputes,
#define KERNEL(name, arguments, on_cpu, on_cuda) .name = on_cuda,
#include <peal/autograd/kernels/families.def>
#undef KERNEL
  };
  return all;
}

}  // namespace peal::cuda
