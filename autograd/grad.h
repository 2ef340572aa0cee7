// SPDX-License-Identifier: Apache-2.0
// Gradients as values: of outputs with respect to tensors, leaves or not, without touching what
// leaves have accumulated (PyTorch: torch.autograd.grad). With create_graph they are recorded, so
// that they can be differentiated in turn (double backward): a gradient penalty is
//
//   const Tensor slope = autograd::grad({sum(f(x))}, {x}, {.create_graph = true})[0];
//   (loss + mean(slope * slope)).backward();
//
// With create_graph the ops between have to have gradients that are made of ops in turn. Those of
// peal are, at any order, but for feed_forward with gelu by tanh on a device; a function that calls
// kernels, or runs a backward() inside (recomputed activations do), is an Error that names it. A
// function that you record (tape.h) is right where it is made of ops and saves inputs of its op, or
// the first output, alone: anything else that it saved, though computed from an input, counts as a
// constant, and nobody tells. Attention then takes the memory of its whole scores. Of a leaf the
// hooks of register_hook run, those after its accumulation do not.
//
// Thread safety: as of the tape.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal::autograd {

struct GradOptions {
  Tensors grad_outputs = {};  // one an output, undefined or none: 1 for an output of one element
  bool retain_graph = false;  // create_graph retains it as well
  bool create_graph = false;
  bool allow_unused = false;  // an input that no output depends on has an undefined gradient
};

// One gradient an input, summed over the outputs; each has storage of its own. Error for an input
// that wants no gradient, or (not with allow_unused) that no output depends on.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const GradOptions& options = {});

}  // namespace peal::autograd
