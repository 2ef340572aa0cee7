// SPDX-License-Identifier: Apache-2.0
// Models and training states in one safetensors file. The model's tensors have their plain keys, so
// PyTorch loads such a file by its keys (`{k: v for k, v in load_file(f).items() if not
// k.startswith(("optimizer.", "extra."))}` where it is a checkpoint); an optimizer's come under
// "optimizer.", what else a run has to remember (averages, a plateau's state) under "extra.", the
// generator and whatever else the caller wants to keep as text in the file's metadata. Files
// are replaced whole or not at all. Thread safety: as of the model; with several ranks one saves
// and all load.
#pragma once

#include <peal/autograd/core/context.h>
#include <peal/nn/module.h>
#include <peal/nn/optim/optimizer.h>

#include <filesystem>

namespace peal::nn {

void save_model(const std::filesystem::path& path, const Module& model,
                const Metadata& metadata = {});
// Takes a checkpoint too, and reads its model alone. Errors name the file and all that differs.
void load_model(const std::filesystem::path& path, Module& model);

// What a checkpoint holds besides tensors. The generator is the one that saved; it is not put back
// by itself, because each rank has a stream of its own. Alone: context().generator =
// checkpoint.generator; with ranks that keep their seeds: context().generator.offset =
// checkpoint.generator.offset.
struct Checkpoint {
  Generator generator;
  Metadata metadata;
  NamedTensors extra;
};

// Saves with the calling thread's generator. Error for a model with a key that starts with
// "optimizer." or "extra.", and for metadata whose name starts with "peal.".
void save_checkpoint(const std::filesystem::path& path, const Module& model,
                     const Optimizer& optimizer, const Metadata& metadata = {},
                     const NamedTensors& extra = {});
// REQUIRES: the optimizer is of the class that was saved, over the same parameters. After an error
// the model may have been loaded, the optimizer not.
Checkpoint load_checkpoint(const std::filesystem::path& path, Module& model, Optimizer& optimizer);

}  // namespace peal::nn
