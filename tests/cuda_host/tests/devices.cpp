// SPDX-License-Identifier: Apache-2.0
// Gives any program the simulated devices: they are registered as a build with CUDA registers its
// own, before main.
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/kernels/cuda/device.h>

namespace {

[[maybe_unused]] const bool registered = [] {
  peal::cuda::register_spaces();
  peal::register_kernels(peal::DeviceType::cuda, &peal::cuda::table());
  return true;
}();

}  // namespace
