// SPDX-License-Identifier: Apache-2.0
// EpochTrainer: the loop of a supervised training on any number of ranks, with progress, mixed
// precision, evaluation, checkpoints, profile and figures as its arguments ask for them. It owns
// nothing that it trains: the program makes model, optimizer and loaders, and reads like a paper's
// page; this runs them.
//
//   launch::EpochTrainer trainer(job, arguments, model, optimizer,
//                           {.settings = {{"data", "digits"}}, .tell = print});
//   trainer.fit(training, test, [](const Tensor& out, const Tensor& y) { return nll_loss(out, y);
//   });
//
// A model of several inputs says what it gives for a batch (.forward); a loss that needs more than
// what the model gives and y is a function of model and batch:
//
//   trainer.fit(training, test, [](nn::DistributedDataParallel& model, const data::Batch& batch) {
//     return cross_entropy(model.call(&Net::predict, batch.x, batch["mask"]), batch.y);
//   });
//
// What else changes from step to step, a program steps itself and has saved:
//
//   {.parts = {{"scheduler", scheduler}, {"ema", ema}},
//    .after_step = [&] { scheduler.step(); ema.update(); }}
//
// Checkpoints are written while the training goes on: after each epoch, and where that is asked for
// (arguments.save_every) within one, from where a resumed run goes on with the batch after the last
// one it learnt from, to the same last bit.
//
// SIGTERM at any rank of a training that saves (Slurm and Kubernetes send it some time before
// SIGKILL) has all ranks save once more, after the same step, and leave fit() by Terminated
// (launch/terminated.h), of which run_main() makes exit status 143. A second one ends at once.
//
// What a model keeps from one batch to the next begins anew with each epoch and each evaluation
// (Module::reset()), and where a run goes on, for it is in no checkpoint: save such a model after
// epochs alone, but for SIGTERM. After
// construction each rank draws from a stream of its own (dropout differs between ranks, not between
// runs). Collective in all; what rank 0 alone does (report, save) needs no words. Thread safety:
// one thread.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/report.h>
#include <peal/launch/training/run_arguments.h>
#include <peal/launch/training/termination.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/ddp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

// Takes a line for people.
using Tell = std::function<void(const std::string&)>;
// Of the model's output and a batch's y; one element.
using Loss = std::function<Tensor(const Tensor& output, const Tensor& y)>;
// Of a batch; one element. It calls the model.
using Step = std::function<Tensor(nn::DistributedDataParallel& model, const data::Batch& batch)>;

struct EpochTrainerOptions {
  // What else makes a run what it is (its data), as settings_of() takes it: a resumed run's are the
  // same.
  Metadata settings = {};
  Tell tell = nullptr;  // gets rank 0's lines; progress goes to stderr
  // What else a run has to remember, beside the parts "model", "optimizer", "scaler" and "random".
  // Loaded after the optimizer, in this order.
  std::vector<nn::Part> parts = {};
  // What the model gives for a batch, for metrics and a Loss; model(batch.x) where there is none.
  Step forward = nullptr;
  // What the model is judged by after each epoch; the accuracy where there is none.
  std::vector<NamedMetric> metrics = {};
  // On all ranks, before each epoch, which counts from 0: to freeze and thaw, for example.
  std::function<void(int epoch)> before_epoch = nullptr;
  // On all ranks, after each step that the optimizer took (with f16 some are left out).
  std::function<void()> after_step = nullptr;
  // On rank 0, before each checkpoint: to keep beside it what it is of no use without. Sooner, it
  // would lie beside another run's, which stays where this one is refused or ends too early.
  std::function<void()> before_save = nullptr;
};

class EpochTrainer {
 public:
  // Resumes, where that is asked for (by find_resume(), too): then the optimizer has the rates of
  // the checkpoint. With arguments.lr, too, each group starts from the rate that it was made with
  // here instead, and has come as far from it as in the checkpoint (Optimizer::set_base_lr).
  // Errors: those of settings_of() and Checkpoints, and a metric to keep the best checkpoint by
  // that there is not, or no folder for it. REQUIRES: all outlive it.
  EpochTrainer(Job& job, const RunArguments& arguments, nn::DistributedDataParallel& model,
               nn::Optimizer& optimizer, EpochTrainerOptions options = {});
  EpochTrainer(const EpochTrainer&) = delete;
  EpochTrainer& operator=(const EpochTrainer&) = delete;

  // Trains for the epochs that are still to come, and judges the model on `test` after each. After
  // an exception the epoch that was under way is still to come. Error for an empty test set;
  // Terminated after SIGTERM, once all is saved.
  void fit(data::DataLoader& training, data::DataLoader& test, const Loss& loss);
  void fit(data::DataLoader& training, data::DataLoader& test, const Step& loss);
  // The metrics over another set. Collective; exact where the loader's shard is.
  std::vector<Value> evaluate(data::DataLoader& loader);
  const std::vector<EpochReport>& epochs() const { return epochs_; }

 private:
  EpochReport train_epoch(data::DataLoader& loader, const Step& loss, Termination* termination);
  void save(const Position& at, std::optional<double> measure = {});
  std::optional<double> measure(const std::vector<Value>& found) const;
  [[noreturn]] void leave(const Position& at);
  Tensor step(const data::Batch& batch, const Step& loss);
  Tensor forward(const data::Batch& batch) const;
  void tell(const std::string& line) const;

  Job& job_;
  RunArguments arguments_;
  nn::DistributedDataParallel& model_;
  nn::Optimizer& optimizer_;
  nn::GradScaler scaler_;
  EpochTrainerOptions options_;
  Checkpoints checkpoints_;
  std::vector<EpochReport> epochs_;
  Position at_;             // that fit() goes on from
  std::int64_t steps_ = 0;  // by this object
};

}  // namespace peal::launch
