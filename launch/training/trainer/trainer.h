// SPDX-License-Identifier: Apache-2.0
// Trainer (transformers has it by this name): a model, its data sets and TrainingArguments, and the
// training loop (learner/loop.h) with the schedule, the logs, evaluations and checkpoints that
// these ask for.
//
//   launch::Trainer trainer(job, net, arguments,
//                           {.train_dataset = train, .eval_dataset = test,
//                            .loss = nn::NLLLoss{},
//                            .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
//                            .tell = launch::print});
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
// one that was not interrupted, to the same last bit (with another learning_rate the schedule goes
// on where it was, from that one); in another world it goes on with the samples
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
#include <peal/launch/training/tracker.h>
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

// Parameters that learn at a rate of their own, learning_rate times lr_scale (fastai: layer groups
// and a slice of rates).
struct LayerGroup {
  std::vector<Tensor> parameters = {};
  double lr_scale = 1;
};

// Of all samples, in their order, on all ranks; label_ids where there is a y.
struct PredictionOutput {
  Tensor predictions, label_ids;
  std::vector<Value> metrics;
};

struct TrainerOptions {
  data::DatasetRef train_dataset = nullptr, eval_dataset = nullptr;
  // In the place of those that the arguments make (transformers: get_train_dataloader,
  // get_eval_dataloader): each gives this rank's share, of training or of what is evaluated.
  std::function<std::unique_ptr<data::DataLoader>()> train_dataloader = nullptr;
  std::function<std::unique_ptr<data::DataLoader>(const data::DatasetRef& dataset)>
      eval_dataloader = nullptr;
  // Of output and y; null: the cross entropy, with label_smoothing_factor.
  Loop::LossFunction loss = nullptr;
  Loop::ForwardFunction forward = nullptr;  // null: model(batch.x)
  // In the place of both, for losses that need more than output and y.
  std::function<LossAndOutput(nn::Module& model, const data::Batch& batch)> compute_loss = nullptr;
  // What a batch's loss is the mean over, by which it counts among those of its step (transformers:
  // num_items_in_batch). Null: the classes of y (i64) that the loss does not leave out, or their
  // weights in it; of a loss of one's own those that are not -100; else the samples.
  std::function<double(const data::Batch& batch)> num_items_in_batch = nullptr;
  std::vector<NamedMetric> compute_metrics = {};  // of evaluations, as "eval_NAME"
  // Others, of what was predicted for all samples together (transformers: compute_metrics of an
  // EvalPrediction): on every rank, of the same, without `metrics`.
  std::function<std::vector<Value>(const PredictionOutput& all)> compute_metrics_of_all = nullptr;
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  OptimizerFactory optimizer = nullptr;  // null: as `optim` says; its rate is learning_rate
  // Each parameter in one of them; none: all learn at learning_rate.
  std::vector<LayerGroup> layer_groups = {};
  // What the rate is multiplied by after `done` of so many updates; null: as lr_scheduler_type
  // says.
  std::function<double(std::int64_t done, std::int64_t updates)> lr_scheduler = nullptr;
  nn::FSDPOptions fsdp = {};               // of strategy "fsdp", beside the arguments fsdp_...
  std::vector<std::int64_t> lengths = {};  // of train_dataset's samples, for group_by_length
  std::function<void()> gradient_checkpointing_enable = nullptr;  // what that argument calls
  // What else makes a run what it is (its data): a resumed one's are the same. Of a checkpoint
  // setting_in() gives them back.
  Metadata settings = {};
  // What else a run has to remember (an ExponentialMovingAverage), loaded after the optimizer.
  std::vector<nn::Part> parts = {};
  // Keeps in the folder what its checkpoints are of no use without, a vocabulary say (transformers:
  // processing_class). Rank 0's, before each checkpoint.
  std::function<void(const std::string& folder)> save_processing = nullptr;
  std::function<void(const std::string&)> tell = nullptr;  // gets rank 0's lines
};

struct TrainOutput {
  std::int64_t global_step = 0;
  double training_loss = 0;  // the mean over all steps
  std::vector<Value> metrics = {};
};

// The file that resume_from_checkpoint names, on all ranks; empty for none. Collective; errors as
// of find_resume(). For a program that makes its model by what is beside a checkpoint.
std::string find_checkpoint(const Job& job, const TrainingArguments& args);
// The same where there has to be one, to judge its model.
std::string checkpoint_to_judge(const Job& job, const TrainingArguments& args);

class Trainer : public Loop {
 public:
  // Moves the model to the device that the arguments name. Collective. Errors, on all ranks: those
  // of TrainingArguments::check(), and arguments that differ between ranks; a loss as well as
  // compute_loss or label_smoothing_factor; group_by_length without a length for each sample, or
  // with a train_dataloader; gradient_checkpointing that nobody enables; an empty eval_dataset
  // that is to be evaluated; a setting that each run has for itself.
  Trainer(Job& job, nn::Module model, TrainingArguments args, TrainerOptions options);
  ~Trainer() override;

  // From the beginning, or where resume_from_checkpoint says, to the end. Errors also: no
  // train_dataset; output_dir has checkpoints of another run, and neither is one of them resumed
  // nor is overwrite_output_dir set; those of Checkpoints. Terminated after SIGTERM.
  TrainOutput train();
  // As if the argument had said so.
  TrainOutput train(const std::string& resume_from_checkpoint);
  // The loaders that these would have. Error where there is no such data.
  std::unique_ptr<data::DataLoader> get_train_dataloader() const;
  std::unique_ptr<data::DataLoader> get_eval_dataloader(
      const data::DatasetRef& dataset = nullptr) const;
  // "eval_loss", "eval_NAME" of metrics, and times, over a data set, or eval_dataset. Errors: there
  // is none, or it is empty.
  std::vector<Value> evaluate(const data::DatasetRef& dataset = nullptr,
                              const std::string& prefix = "eval");
  // What the model says of all samples, with metrics where they have labels. Error, here and above:
  // there is no data set, or it is empty.
  PredictionOutput predict(const data::DatasetRef& dataset, const std::string& prefix = "test");
  // The model of the checkpoint that resume_from_checkpoint names, to evaluate it without a
  // training. Collective. Error where there is none.
  void load_model();
  // Rank 0 writes the model (nn::save_model) into output_dir, or to that path. Collective; Error on
  // all ranks.
  void save_model(const std::string& path = "");
  // "***** train metrics *****", and a line each, by name. Rank 0 tells.
  void log_metrics(const std::string& split, const std::vector<Value>& metrics) const;
  // output_dir/train_results.json, and their part of output_dir/all_results.json, by rank 0.
  // Collective.
  void save_metrics(const std::string& split, const std::vector<Value>& metrics,
                    bool combined = true) const;
  // output_dir/trainer_state.json, by rank 0. Collective.
  void save_state() const;
  // On every rank, between trainings. Error for none, or in a training.
  void add_callback(std::shared_ptr<TrainerCallback> callback);
  bool is_world_process_zero() const { return job.is_main(); }

  // What it was made with; and how far it is: steps, epochs, log.
  const TrainingArguments& args() const { return args_; }
  const TrainerState& state() const { return state_; }
  // What it was made with beside the arguments.
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
  void report(const TrainerLog& found);  // report_to
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
  void keep_processing() const;
  void load_best_model();
  void load_everywhere(const std::string& path, const char* why);
  Metadata own_settings() const;  // that make a run what it is, besides the program's
  void check_settings() const;    // the program's
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
  std::optional<Trackers> trackers_;  // once something was reported
  std::vector<double> base_lrs_;      // of the optimizer's groups
  std::int64_t updates_ = 0;          // that the schedule is of
  std::int64_t schedule_ahead_ = 0;   // updates that another world's steps stand for
  std::int64_t judged_at_ = -1;       // the step of the last evaluation that has the best metric
  double judged_ = 0;                 // the metric then
};

}  // namespace peal::launch
