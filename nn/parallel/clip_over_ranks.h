// SPDX-License-Identifier: Apache-2.0
// Clipping over ranks (gradient clipping; Megatron-LM: clip_grad_norm_ over model-parallel ranks):
// as nn::clip_grad_norm_(), where each rank has gradients that no other has, pieces or layers. What
// a wrapper's own clip_grad_norm_() does. Thread safety: as of the gradients.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

namespace peal::nn {

// Gradients of which the ranks of another group have other parts (cut_parameters.h), and that
// group, in which everybody makes the same calls.
struct CutGradients {
  Tensors gradients, replicated;
  comm::ProcessGroup group{};  // none: there are none
};

// Collective. Returns the norm before, of all ranks' gradients as one long vector, the same on all
// ranks; `replicated` are those that every rank has alike, which count once. Error for settings
// that nn::clip_grad_norm_() refuses.
double clip_over_ranks(const Tensors& gradients, const comm::ProcessGroup& group, double max_norm,
                       double norm_type, const comm::Label& label, const Tensors& replicated = {},
                       const CutGradients& cut = {});
// That Error; for who has to look at other things first.
void check_clipping(double max_norm, double norm_type);

}  // namespace peal::nn
