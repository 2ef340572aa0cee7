// SPDX-License-Identifier: Apache-2.0
// Images in bf16 between [N, C, H, W] and the layouts that oneDNN's convolutions like: all channels
// of a pixel together, or sixteen of them. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/cpu/onednn.h>

namespace peal::cpu {

// Copies images from one layout to the other. False, and nothing done, where these are not such.
bool copy_channels(const Tensor& to, const dnnl::memory::desc& to_desc, const Tensor& from,
                   const dnnl::memory::desc& from_desc);

}  // namespace peal::cpu
