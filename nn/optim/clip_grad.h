// SPDX-License-Identifier: Apache-2.0
// Bounds for gradients, between backward and the optimizer's step. Parameters without a gradient
// are passed over. Thread safety: as of the parameters.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <vector>

namespace peal::nn {

// Scales all gradients so that their norm, as of one long vector, is at most max_norm. norm_type is
// at least 1, or infinity for the largest magnitude. Returns the norm before, f64, where the
// gradients are, and waits for no device, so a captured graph may have it; item() does. Gradients
// that are not finite make them all so, as in PyTorch. Error for a wrapper's local_parameters(),
// whose norm the wrapper's own clip_grad_norm_() knows.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       double norm_type = 2.0);

// Cuts every element to [-bound, bound].
void clip_grad_value_(const std::vector<Tensor>& parameters, double bound);

}  // namespace peal::nn
