// SPDX-License-Identifier: Apache-2.0
// Softmax; log_softmax is beside the losses (loss.h).
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// exp(x) over its sum along dim, shifted by the largest: finite for any finite input.
Tensor softmax(const Tensor& x, int dim = -1);

}  // namespace peal
