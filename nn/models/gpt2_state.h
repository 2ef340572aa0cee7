// SPDX-License-Identifier: Apache-2.0
// GPT-2's published form of a state: that of the files of Hugging Face's transformers, where the
// linear layers are Conv1D, with weights [in, out]. Pure functions between it and the state_dict of
// nn::GPT. Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/safetensors.h>

namespace peal::nn {

// For GPT::load_state_dict. Keys may have the prefix "transformer." (as GPT2LMHeadModel writes
// them) or not (GPT2Model, and the file of "gpt2" itself); attention masks (attn.bias,
// attn.masked_bias) are left out; a head that is not there is the embedding. Error for weights that
// lie as [out, in]: those are nn::GPT's and nanoGPT's own, which load as they are.
NamedTensors from_gpt2(const NamedTensors& published);

// For GPT2LMHeadModel.load_state_dict, from GPT::state_dict.
NamedTensors to_gpt2(const NamedTensors& state);

}  // namespace peal::nn
