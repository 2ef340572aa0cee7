// SPDX-License-Identifier: Apache-2.0
// Softmax, and draws by it; log_softmax is beside the losses (loss.h). Thread safety: as of the
// operands and the generator.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// exp(x) over its sum along dim, shifted by the largest: finite for any finite input.
Tensor softmax(const Tensor& x, int dim = -1);

// A class along dim drawn by these logits, in a way that has a gradient: softmax((logits + noise) /
// tau), with noise of Gumbel's distribution (Jang et al., "Categorical reparameterization with
// Gumbel-softmax", 2017). hard: 1 for the likeliest and 0 for the others, exactly, with the
// gradient of the soft one. REQUIRES: tau > 0.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int dim = -1,
                      Generator& generator = context().generator);

}  // namespace peal
