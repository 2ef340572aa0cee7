// SPDX-License-Identifier: Apache-2.0
// The main of tests with simulated devices: they are registered as a build with CUDA registers its
// own. doctest's handlers of signals would hide the simulator's report of a fault.
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/kernels/cuda/device.h>

#include "launch.h"

#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  peal::cuda::register_spaces();
  peal::register_kernels(peal::DeviceType::cuda, &peal::cuda::table());
  const int failed = doctest::Context(argc, argv).run();
  cuda_host::write_launches();
  return failed;
}
