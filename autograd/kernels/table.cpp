// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/crowding.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/table.h>
#if defined(PEAL_CUDA)
#include <peal/autograd/kernels/cuda/device.h>
#endif

#include <atomic>

namespace peal {
namespace {

// Written once while a device library is loaded, read ever after.
std::atomic<const Kernels*> cuda_table{nullptr};

#if defined(PEAL_CUDA)
[[maybe_unused]] const bool cuda_registered = [] {
  register_kernels(DeviceType::cuda, &cuda::table());
  return true;
}();
#endif

}  // namespace

void no_kernel(std::string_view op, Device device, DType dtype) {
  fail(concat(op, ": no ", device.type == DeviceType::cpu ? "cpu" : "cuda", " kernel for ", dtype));
}

void not_differentiable() {
  fail(concat("grad: the gradient of '", OpName::current(),
              "' is computed by a kernel and cannot be differentiated in turn; create_graph holds "
              "for the ops that autograd/grad.h lists"));
}

const Kernels& kernels(Device device) {
  if (device.type == DeviceType::cpu) {
    cpu::watch_for_crowding();
    return cpu::table();
  }
  const Kernels* table = cuda_table.load(std::memory_order_acquire);
  PEAL_CHECK(
      table != nullptr, "kernels: ", device,
      " asked for, but this build has no CUDA kernels; configure with -DPEAL_CUDA=ON or use cpu");
  return *table;
}

void register_kernels(DeviceType type, const Kernels* table) {
  PEAL_CHECK(type == DeviceType::cuda, "kernels: the CPU's table is built in");
  cuda_table.store(table, std::memory_order_release);
}

}  // namespace peal
