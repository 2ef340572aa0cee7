// SPDX-License-Identifier: Apache-2.0
// The main of tests that need a GPU: skipped, loudly, where a build with CUDA finds none.
#include <peal/autograd/core/device.h>

#include <cstdio>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  if (peal::device_count(peal::DeviceType::cuda) == 0) {
    std::puts("!!!!! SKIPPED: this machine has no CUDA device, or no driver for it");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
