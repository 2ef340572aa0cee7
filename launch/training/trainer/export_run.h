// SPDX-License-Identifier: Apache-2.0
// Exporting a run: all that a program of another kind needs to train the same, in one safetensors
// file, for comparisons (bench/peers). Its tensors: the model's as "model.KEY"; batch K of epoch E
// as "train.E.K.x", "train.E.K.y" and what else it has; those of eval_dataset as "test.K.x" and so
// on; and "rates" [steps, groups] of f64, the optimizer's before each step. Thread safety: as of
// the Trainer.
#pragma once

#include <peal/launch/training/trainer/trainer_callback.h>

#include <string>
#include <utility>

namespace peal::launch {

// Writes it before the first step. Errors: more ranks than one, which would each write its own
// batches to one path; a run that goes on from a checkpoint; as of save_safetensors(), and what the
// loaders throw.
class ExportRun : public TrainerCallback {
 public:
  explicit ExportRun(std::string path) : path_(std::move(path)) {}
  void on_train_begin(Trainer& trainer, TrainerControl& control) override;

 private:
  std::string path_;
};

}  // namespace peal::launch
