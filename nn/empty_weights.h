// SPDX-License-Identifier: Apache-2.0
// Empty weights (Accelerate: init_empty_weights; PyTorch: the meta device; torchdistX:
// deferred_init, materialize_module): a model whose parameters have names, shapes and types, and no
// memory, so that one that is larger than the memory of a rank can be made there and cut:
//
//   nn::GPT gpt = [&] {
//     const auto empty = nn::init_empty_weights();
//     return nn::GPT(settings);
//   }();
//   nn::FullyShardedDataParallel fsdp(gpt, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
//
// FullyShardedDataParallel makes values a unit at a time, and cuts it before the next one's. They
// are the bits that the model would have had, whichever units there are, and so are random numbers
// drawn after it: what starts parameters is written down with its place in the stream
// (autograd/core/deferred.h), which init functions do that come later, too (PyTorch:
// param_init_fn): model.apply(...) of an empty model takes no memory. For a model that fits:
//
//   nn::materialize_module(gpt);                    // as it would have started
//   nn::load_checkpoint_in_model(gpt, "gpt/");      // or as it was saved; it is there once
//
// What is loaded into a parameter gives it memory, and no value is made for nothing. load_model()
// and nn::load_sharded(), of a checkpoint in one file, too, give it that which they have read into.
// Buffers have memory always, and so have parameters that a constructor computes, or that it is
// given. Other wrappers make all values when they wrap; a Pipe those of its own stages. Tensors
// made in the scope that are no module's get theirs from materialize(tensor), or where they are
// read in it. Whoever reads a parameter before is an Error that names it; names, shapes and sizes
// are there (`peal estimate-memory` needs no more). Thread safety: a scope is its thread's; as of
// Module.
#pragma once

#include <peal/autograd/core/deferred.h>
#include <peal/nn/module.h>

#include <string>
#include <vector>

namespace peal::nn {

// While what is returned lives, models are made without memory for parameters.
[[nodiscard]] inline DeferInit init_empty_weights() { return DeferInit(); }

// Names of parameters that have no values yet.
std::vector<std::string> empty_parameters(const Module& module);

// Gives all parameters below memory and values.
void materialize_module(const Module& module);

}  // namespace peal::nn
