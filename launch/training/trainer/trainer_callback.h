// SPDX-License-Identifier: Apache-2.0
// Callbacks of the Trainer, where it is, and what it shall do next (transformers: TrainerCallback,
// TrainerState, TrainerControl).
//
//   struct StopAtLoss : launch::TrainerCallback {
//     void on_log(launch::Trainer& trainer, launch::TrainerControl& control) override {
//       const auto loss = trainer.state().log_history.back().find("loss");
//       if (loss && *loss < 0.1) control.should_training_stop = true;
//     }
//   };
//
// In the order of a training:
//
//   on_train_begin
//     on_epoch_begin
//       on_step_begin [on_substep_end]* on_pre_optimizer_step on_optimizer_step on_step_end
//       [on_log] [on_evaluate] [on_save]                     for each update
//     on_epoch_end [on_log] [on_evaluate] [on_save]          for each epoch
//   on_train_end
//
// A checkpoint of an epoch's last update is saved at the epoch's end, once what comes there is
// over. After an update whose gradients were not finite (fp16) on_optimizer_step comes as well, and
// the schedule stays. Each callback is called on every rank. A wish of one rank (should_save =
// true, say) is that of all: it is heard at the end of the update or epoch. What a callback throws
// ends the training on all ranks. Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/evaluation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

class Trainer;
struct TrainingArguments;

// What was found at a step: numbers by name, in the order of their finding.
struct TrainerLog {
  std::int64_t step = 0;
  std::vector<Value> values = {};
  // The number of that name, in its own unit, if there is one.
  std::optional<double> find(std::string_view name) const;
  // "{'loss': 0.8812, 'learning_rate': 2.33475e-05, 'epoch': 0.53}"
  std::string in_text() const;
};

struct TrainerState {
  double epoch = 0;  // epochs that are over, and the part of the one under way
  std::int64_t global_step = 0, max_steps = 0;  // updates
  int num_train_epochs = 0;
  std::vector<TrainerLog> log_history = {};
  std::optional<double> best_metric = {};
  std::int64_t best_global_step = 0;

  // For checkpoints: what a run that goes on has to know, without how long it took, so that equal
  // runs have equal files. Error for text that is none of it.
  std::string to_json() const;
  void read_json(const std::string& text);
};

struct TrainerControl {
  bool should_training_stop = false, should_epoch_stop = false;
  bool should_log = false, should_evaluate = false, should_save = false;
};

class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  // Each is called on every rank when its moment comes, and does nothing as it is. A step is an
  // update of the parameters; a substep a batch within one that does not update yet.
  virtual void on_train_begin(Trainer&, TrainerControl&) {}
  virtual void on_train_end(Trainer&, TrainerControl&) {}
  virtual void on_epoch_begin(Trainer&, TrainerControl&) {}
  virtual void on_epoch_end(Trainer&, TrainerControl&) {}
  virtual void on_step_begin(Trainer&, TrainerControl&) {}
  virtual void on_substep_end(Trainer&, TrainerControl&) {}
  // Gradients are clipped; the update comes.
  virtual void on_pre_optimizer_step(Trainer&, TrainerControl&) {}
  // They are still there.
  virtual void on_optimizer_step(Trainer&, TrainerControl&) {}
  // After the update; numbers were logged; an evaluation is over, a prediction, or a batch of
  // either.
  virtual void on_step_end(Trainer&, TrainerControl&) {}
  virtual void on_log(Trainer&, TrainerControl&) {}
  virtual void on_evaluate(Trainer&, TrainerControl&) {}
  virtual void on_predict(Trainer&, TrainerControl&) {}
  virtual void on_prediction_step(Trainer&, TrainerControl&) {}
  // A checkpoint is being written, in the background.
  virtual void on_save(Trainer&, TrainerControl&) {}
};

// Ends the training after so many evaluations in which the metric for the best model was not better
// than the best before by more than the threshold (transformers: EarlyStoppingCallback). A run that
// goes on has waited as long as it had when it was saved. Error at the beginning where there is no
// such metric.
class EarlyStopping : public TrainerCallback {
 public:
  // `patience` in evaluations; `threshold`: by how much a metric has to be better, in its own unit.
  explicit EarlyStopping(int patience = 1, double threshold = 0)
      : patience_(patience), threshold_(threshold) {}
  void on_train_begin(Trainer& trainer, TrainerControl& control) override;
  void on_evaluate(Trainer& trainer, TrainerControl& control) override;

 private:
  void judge(const TrainingArguments& args, const TrainerLog& log);

  int patience_, waited_ = 0;
  double threshold_;
  std::optional<double> best_ = {};
};

}  // namespace peal::launch
