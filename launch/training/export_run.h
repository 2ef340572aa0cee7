// SPDX-License-Identifier: Apache-2.0
// Exporting a run: all that a program of another kind needs to train the same, in one safetensors
// file, for comparisons (bench/peers). Its tensors: the model's as "model.KEY"; batch K of epoch E
// as "train.E.K.x", "train.E.K.y" and what else it has; those of the test set as "test.K.x" and so
// on; and "rates" [steps, groups] of f64, the optimizer's before each step. Thread safety: as of
// what it is given.
#pragma once

#include <peal/data/loader.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/parallel/ddp.h>

#include <filesystem>

namespace peal::launch {

// For a run of one rank that begins: afterwards the loader is to open epoch 0, and the scheduler
// has made no step. Errors: more ranks than one, which would each write its own batches to one
// path; as of save_safetensors(), and what the loaders throw.
void export_run(const std::filesystem::path& path, const nn::DistributedDataParallel& model,
                data::DataLoader& training, data::DataLoader& test, int epochs,
                nn::LRScheduler& scheduler);

}  // namespace peal::launch
