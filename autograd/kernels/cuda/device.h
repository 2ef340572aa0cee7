// SPDX-License-Identifier: Apache-2.0
// What the CUDA parts bring: memory and kernels. They are registered when the library of kernels is
// loaded, and ask for a driver only when first used, so a build with CUDA runs on a machine
// without. Work is ordered on the calling thread's own stream (cudaStreamPerThread): ranks may be
// threads.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cuda {

const MemorySpace& memory();
const Kernels& table();

}  // namespace peal::cuda
