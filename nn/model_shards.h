// SPDX-License-Identifier: Apache-2.0
// Models in several files (Hugging Face: model.safetensors.index.json; Accelerate: save_model,
// load_checkpoint_in_model), for those that fit into memory once and not twice: a folder has files
// of a bounded size and an index, which says in which file each tensor is, and tensors are read one
// after the other, each into its place.
//
//   nn::save_model_shards("gpt/", model, {.max_shard_size = 2'000'000'000});
//   nn::load_checkpoint_in_model(model, "gpt/");
//
// Names and files are as PyTorch's world has them, so what was saved there is loaded here, and the
// other way round. The index is written last, and an old one goes first: a folder whose saving was
// cut short says so. A checkpoint of several parts: checkpoint.h. Thread safety: one thread; with
// several ranks one saves and all load.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/module.h>

#include <cstdint>
#include <filesystem>

namespace peal::nn {

struct ShardOptions {
  // Bytes of the tensors of a file; one that is larger has a file of its own.
  std::int64_t max_shard_size = 5'000'000'000;
  Metadata metadata = {};
};

// Makes the folder. "model.safetensors" where one file is enough, else
// "model-00001-of-00003.safetensors" and so on with their index; of earlier ones none is left.
// Error, before anything is touched, where a tensor has no values (nn/empty_weights.h).
void save_model_shards(const std::filesystem::path& folder, const Module& model,
                       const ShardOptions& options = {});
// Of a model's state, as where the model is in pieces.
void save_model_shards(const std::filesystem::path& folder, const NamedTensors& state,
                       const ShardOptions& options = {});

// From such a folder, an index, or a file with a model. The memory it takes is that of the largest
// tensor. Floating types are converted. Errors, before anything is written: as of
// Module::load_state_dict(), with the file; an index that names other tensors than its files have;
// a tensor that is there twice; a file that is not there, or was damaged.
IncompatibleKeys load_checkpoint_in_model(Module& model, const std::filesystem::path& from,
                                          bool strict = true);

}  // namespace peal::nn
