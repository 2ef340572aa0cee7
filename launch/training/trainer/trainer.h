// SPDX-License-Identifier: Apache-2.0
// Trainer (transformers has it by this name): a model, its data sets and TrainingArguments, and the
// training loop (learner/loop.h) with the schedule, the logs, evaluations and checkpoints that
// these ask for.
//
//   launch::Trainer trainer(job, net, arguments,
//                           {.train_dataset = train, .eval_dataset = test,
//                            .loss = nn::NLLLoss{},
//                            .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
//                            .tell = print});
//   trainer.train();
//   trainer.evaluate();
//
// Each rank learns from its share of the samples, so a step is of per_device_train_batch_size times
// gradient_accumulation_steps times the ranks, and gradients are those of the mean over all of its
// labels, however these lie in batches and ranks. An epoch's last step may be of fewer batches.
// What is evaluated and predicted has each sample once.
//
// Logs. "loss" is the mean over the steps since the last log, each of all ranks; beside it stand
// "grad_norm" (before it was clipped), "learning_rate" (of the step to come) and "epoch".
//
// Checkpoints (checkpoints.h) are files of output_dir, whole or not there, written while the
// training goes on. A run that goes on from one (resume_from_checkpoint) is, in as many ranks, the
// one that was not interrupted, to the same last bit; in another world it goes on with the samples
// of the epoch that nobody has seen, each once, and with the schedule where it was (by
// group_by_length, within an epoch, an Error where its ranks cannot leave out alike what is over).
// SIGTERM at any rank of a training that saves has all save after the same step and leave train()
// by Terminated (terminated.h). What else ends a training, an exception of a callback or a full
// disk, leaves the checkpoints that there are.
//
// What a model keeps from one batch to the next begins anew after an evaluation, and where a run
// goes on. Collective in all; rank 0 alone tells. Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/checkpoints.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/trainer/trainer_callback.h>
#include <peal/launch/training/trainer/training_arguments.h>
#include <peal/nn/optim/scheduler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

class Profiler;
class TrainerSteps;

// A loss of one element, the mean over a batch, and what the model gave.
struct LossAndOutput {
  Tensor loss, output;
};

struct TrainerOptions {
  data::DatasetRef train_dataset = nullptr, eval_dataset = nullptr;
  // Of output and y; null: the cross entropy, with label_smoothing_factor.
  Loop::LossFunction loss = nullptr;
  Loop::ForwardFunction forward = nullptr;  // null: model(batch.x)
  // In the place of both, for losses that need more than output and y.
  std::function<LossAndOutput(nn::Module& model, const data::Batch& batch)> compute_loss = nullptr;
  // What a batch's loss is the mean over, by which it counts among those of its step (transformers:
  // num_items_in_batch). Null: the classes of y (i64) that are not -100, or else the samples.
  std::function<double(const data::Batch& batch)> num_items_in_batch = nullptr;
  std::vector<NamedMetric> compute_metrics = {};  // of evaluations, as "eval_NAME"
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  OptimizerFactory optimizer = nullptr;  // null: as `optim` says; its rate is learning_rate
  // What the rate is multiplied by after `done` of so many updates; null: as lr_scheduler_type
  // says.
  std::function<double(std::int64_t done, std::int64_t updates)> lr_scheduler = nullptr;
  std::vector<std::int64_t> lengths = {};  // of train_dataset's samples, for group_by_length
  std::function<void()> gradient_checkpointing_enable = nullptr;  // what that argument calls
  // What else makes a run what it is (its data): a resumed one's are the same.
  Metadata settings = {};
  std::function<void(const std::string&)> tell = nullptr;  // gets rank 0's lines
};

struct TrainOutput {
  std::int64_t global_step = 0;
  double training_loss = 0;  // the mean over all steps
  std::vector<Value> metrics = {};
};

// Of all samples, in their order, on all ranks; label_ids where there is a y.
struct PredictionOutput {
  Tensor predictions, label_ids;
  std::vector<Value> metrics;
};

class Trainer : public Loop {
 public:
  // Moves the model to the device that the arguments name. Collective. Errors, on all ranks: those
  // of TrainingArguments::check(), and arguments that differ between ranks; a loss as well as
  // compute_loss or label_smoothing_factor; group_by_length without a length for each sample;
  // gradient_checkpointing that nobody enables.
  Trainer(Job& job, nn::Module model, TrainingArguments args, TrainerOptions options);
  ~Trainer() override;

  // From the beginning, or where resume_from_checkpoint says, to the end. Errors also: no
  // train_dataset; output_dir has checkpoints of another run, and neither is one of them resumed
  // nor is overwrite_output_dir set; those of Checkpoints. Terminated after SIGTERM.
  TrainOutput train();
  // "eval_loss", "eval_NAME" of metrics, and times, over a data set, or eval_dataset.
  std::vector<Value> evaluate(const data::DatasetRef& dataset = nullptr,
                              const std::string& prefix = "eval");
  PredictionOutput predict(const data::DatasetRef& dataset, const std::string& prefix = "test");
  // The model of the checkpoint that resume_from_checkpoint names, to evaluate it without a
  // training. Collective. Error where there is none.
  void load_model();
  // Rank 0 writes the model (nn::save_model) into output_dir, or to that path. Collective.
  void save_model(const std::string& path = "");

  const TrainingArguments& args() const { return args_; }
  const TrainerState& state() const { return state_; }
  const TrainerOptions& options() const { return options_; }
  // Null before train().
  nn::LRScheduler* lr_scheduler() const { return scheduler_.get(); }

 private:
  friend class TrainerSteps;
  struct Judged;

  void check_options() const;
  void tell(const std::string& line) const;
  // A line for people, an entry of the history, and on_log.
  void log(std::vector<Value> values);
  void report(const TrainerLog& found) const;  // report_to
  std::unique_ptr<data::DataLoader> loader_of_training() const;
  std::unique_ptr<data::DataLoader> loader_of(const data::DatasetRef& dataset) const;
  void create_optimizer();
  void create_scheduler();
  // trainer_checkpoints.cpp
  void make_checkpoints();
  Start begin();  // where the run begins: at 0, or what was resumed
  Start take_up(const std::string& found);
  void leave_out_seen(const std::string& found, int in_epoch, std::int64_t world);
  void scale_updates(const Position& at, std::int64_t whole, std::int64_t over);
  // Of files of other runs than the one that saved `resumed`, or an Error that there are some.
  void clear_output_dir(const std::string& resumed) const;
  void save_checkpoint();
  void load_best_model();
  void load_everywhere(const std::string& path, const char* why);
  std::string found_checkpoint() const;  // that resume_from_checkpoint names; empty for none
  std::string folder() const;
  // trainer_evaluation.cpp
  std::vector<Value> judge(data::DataLoader& loader, const std::string& prefix, Judged& judged);
  void note_best(const std::vector<Value>& found);
  void banner(std::int64_t trainable) const;

  TrainingArguments args_;
  TrainerOptions options_;
  TrainerState state_;
  nn::Module plain_;  // the model without what wraps it
  std::shared_ptr<TrainerSteps> steps_;
  std::shared_ptr<Profiler> profiler_;  // null: none is asked for
  std::unique_ptr<data::DataLoader> train_loader_;
  std::unique_ptr<nn::LRScheduler> scheduler_;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::int64_t updates_ = 0;         // that the schedule is of
  std::int64_t schedule_ahead_ = 0;  // updates that another world's steps stand for
  std::int64_t judged_at_ = -1;      // the step of the last evaluation that has the best metric
  double judged_ = 0;                // the metric then
};

}  // namespace peal::launch
