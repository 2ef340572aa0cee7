// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/sum_of_rows.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/widening.h>

namespace peal::cpu {

const Kernels& table() {
  static const Kernels all = {
      .attention_recomputes = attention_recomputes,
#define KERNEL(name, arguments, on_cpu, on_cuda) .name = on_cpu,
#include <peal/autograd/kernels/families.def>
#undef KERNEL
  };
  return all;
}

}  // namespace peal::cpu
