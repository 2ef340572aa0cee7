// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., "RoFormer: enhanced transformer with rotary position
// embedding", 2021).
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

struct RotaryOptions {
  double base = 10000;
  std::int64_t offset = 0;  // the position of the first row
  // Element i turns with element i + D / 2 (GPT-NeoX, LLaMA); or 2 i with 2 i + 1 (RoFormer,
  // GPT-J).
  bool interleaved = false;
};

// x [..., T, D], D even: pair i of the row at position t turned by t base^(-2 i / D).
Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options = {});

}  // namespace peal
