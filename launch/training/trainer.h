// SPDX-License-Identifier: Apache-2.0
// Trainer: the loop of a supervised training on any number of ranks, with progress, mixed
// precision, evaluation, checkpoints, profile and figures as its arguments ask for them. It owns
// nothing that it trains: the program makes model, optimizer and loaders, and reads like a paper's
// page; this runs them.
//
//   launch::Trainer trainer(job, arguments, model, optimizer, {{"data", "digits"}}, print);
//   trainer.fit(training, test, [](const Tensor& out, const Tensor& y) { return nll_loss(out, y);
//   });
//
// After construction each rank draws from a stream of its own (dropout differs between ranks, not
// between runs). Collective in all; what rank 0 alone does (report, save) needs no words. Thread
// safety: one thread.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/arguments.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/launch/training/report.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/ddp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::launch {

// Takes a line for people.
using Tell = std::function<void(const std::string&)>;
// Of the model's output and a batch's y; one element.
using Loss = std::function<Tensor(const Tensor& output, const Tensor& y)>;

class Trainer {
 public:
  // `settings` name what else makes a run what it is (its data), beside seed, batch size, precision
  // and world; they go into checkpoints and figures. `tell` gets rank 0's lines; progress goes to
  // stderr. Resumes, where that is asked for. REQUIRES: all outlive it.
  Trainer(Job& job, const TrainingArguments& arguments, nn::DistributedDataParallel& model,
          nn::Optimizer& optimizer, const Metadata& settings = {}, Tell tell = nullptr);

  // Trains for the epochs that are still to come, and judges the model on `test` after each.
  void fit(data::DataLoader& training, data::DataLoader& test, const Loss& loss);
  const std::vector<EpochReport>& epochs() const { return epochs_; }

 private:
  EpochReport train_epoch(data::DataLoader& loader, int epoch, const Loss& loss);
  Tensor step(const data::Batch& batch, const Loss& loss);
  void tell(const std::string& line) const;

  Job& job_;
  TrainingArguments arguments_;
  nn::DistributedDataParallel& model_;
  nn::Optimizer& optimizer_;
  nn::GradScaler scaler_;
  Metadata settings_;
  Tell tell_;
  Checkpoints checkpoints_;
  std::vector<EpochReport> epochs_;
  int first_epoch_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace peal::launch
