// SPDX-License-Identifier: Apache-2.0
// The table of kernels that CUDA brings. It asks for a driver only when first used, so a build with
// CUDA runs on a machine without. Thread safety: a constant.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cuda {

const Kernels& table();

}  // namespace peal::cuda
