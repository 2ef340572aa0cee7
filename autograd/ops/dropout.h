// SPDX-License-Identifier: Apache-2.0
// Dropout: zeroes each element with probability p and scales the rest by 1 / (1 - p) while
// training.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Draws from the context's generator, so the mask is equal on every device. p in [0, 1].
Tensor dropout(const Tensor& x, double p, bool training = true);

}  // namespace peal
