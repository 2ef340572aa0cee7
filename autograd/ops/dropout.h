// SPDX-License-Identifier: Apache-2.0
// Dropout: zeroes each element with probability p and scales the rest by 1 / (1 - p) while
// training.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>

namespace peal {

// Draws from the context's generator, so the mask is equal on every device. p in [0, 1].
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
// dropout(x, training()) would drop everything: F.dropout(x, training=...) is dropout(x, 0.5, ...).
template <std::same_as<bool> B>
Tensor dropout(const Tensor& x, B training) = delete;

// The same by channel of x [N, C, ...]: all of one, or none (Tompson et al., "Efficient object
// localization using convolutional networks", 2015, section 3.2).
Tensor feature_dropout(const Tensor& x, double p, bool training = true);
// The same, of x [N, C, L], [N, C, H, W] and [N, C, D, H, W] alone.
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true);

// Sets elements to the least value of SELU, and scales and shifts so that a mean of 0 and a
// variance of 1 stay (Klambauer et al., "Self-normalizing neural networks", 2017, section 3).
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
// The same by channel of x [N, C, ...].
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace peal
