// SPDX-License-Identifier: Apache-2.0
// Computed parameters: a weight that a layer computes with, and that is made of other parameters
// before each forward (weight_norm.h). It is no parameter then: it is not trained, saved or moved,
// and what backward brings it goes on to what it was made of. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <functional>

namespace peal::nn {

// `weight`, a handle that the module's forward reads, and which it has given up as a parameter
// (remove_parameter), becomes compute() before each call of the module, with the module's mode.
// Called between, the layer's other methods see what the last call had. `compute` must not hold
// the module itself, which would live for ever.
void compute_before_forward(Module& module, const Tensor& weight,
                            std::function<Tensor(bool training)> compute);

}  // namespace peal::nn
