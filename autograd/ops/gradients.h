// SPDX-License-Identifier: Apache-2.0
// Gradients of a whole model as one: norms and factors over a list of tensors of any floating
// types. On a device that is a few launches for all, and what is returned is waited for once.
// Nothing is recorded. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <span>

namespace peal {

// The norm of order p >= 1, or of infinite order the largest magnitude, of all elements together; 0
// of none, NaN where one is NaN. Summed in f64.
double norm_of(std::span<const Tensor> list, double p);
// The same before its root is taken, which parts of a model add up: the sum of magnitudes to the
// power of p, or the largest of them.
double power_sum_of(std::span<const Tensor> list, double p);

// Scales all so that their norm is at most `most` (each x *= most / (norm + 1e-6) where that is
// below 1 or NaN), and counts a version. Returns the norm before, f64, where the tensors are;
// nothing is waited for, unless they are on several devices.
Tensor clip_norm(std::span<const Tensor> list, double p, double most);

// Each x *= factor, and counts a version.
void scale_all(std::span<const Tensor> list, double factor);
// The same; returns whether all results are finite.
bool scale_all_finite(std::span<const Tensor> list, double factor);

}  // namespace peal
