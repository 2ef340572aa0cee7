// SPDX-License-Identifier: Apache-2.0
// The training loop with events (fastai: Learner's _do_fit and below), to be read, copied and
// owned: loop.cpp is all of it. Whatever else a training does is a callback on it (events.h); the
// Learner (learner.h) is this loop with some callbacks and the names that fastai's users know.
//
//   before_fit
//     before_epoch
//       before_train
//         before_batch after_pred after_loss before_backward after_backward before_step after_step
//         after_batch                                        for each batch
//       after_train, before_validate
//         before_batch after_pred after_loss after_batch     for each batch
//       after_validate
//     after_epoch                                            for each epoch
//   after_fit
//
// It stands on an Accelerator, which has device, precision, the strategy by which ranks share the
// work, and the averages: a run has model and optimizer prepared, and what happens in a batch goes
// through it. Each loss is the mean over the rank's batch and counts by its samples, so gradients
// are those of the mean over all samples of the step, of all ranks and of the batches that were
// accumulated. On several ranks each draws its own dropout. A loader that is each rank's share
// stays as it is; of one that is whole each rank takes its part (share.h), a validation each sample
// once. What escapes on one rank, or a cancel on some ranks alone, is an Error on all.
//
// A run can begin where another one stopped (Start): what it computes from there on is that run's,
// bit for bit, where model, optimizer, random numbers and loader are as they were: prepare() comes
// first, from which on each rank draws numbers of its own, and then what is loaded. Where the other
// one stopped is `epoch` and `iter` after a batch, and a callback that ends a run there (after so
// many steps, say) throws CancelFitException from after_batch. Thread safety: the rank's thread.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/learner/events.h>
#include <peal/launch/training/learner/shares.h>
#include <peal/nn/module.h>
#include <peal/nn/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

class Loop {
 public:
  using LossFunction = std::function<Tensor(const Tensor& output, const Tensor& y)>;
  using ForwardFunction = std::function<Tensor(nn::Module& model, const data::Batch& batch)>;

  // Options of the Accelerator; how many batches a step has is the loop's to say (sync_gradients),
  // and ranks have equally many (even_batches).
  explicit Loop(Job& j, AcceleratorOptions options = {.device = ""});
  virtual ~Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Epochs of training up to that number, each with a validation where there is a loader for it.
  // Prepares what is not yet. Collective. Errors, on all ranks: their starts differ, or a loader
  // stands elsewhere; loaders that are other ranks' shares, or repeat samples in a validation.
  void run(int number_of_epochs, Start start = {});
  // One validation, with its events. Collective.
  void run_validation(data::DataLoader& with);

  // The one on which all is done. Collective where it is made: by the first call after the
  // constructor or accelerate(), which chooses other options while nothing is prepared.
  Accelerator& accelerator();
  // Errors: something is prepared; gradient_accumulation_steps, for which there is a callback;
  // even_batches = false.
  void accelerate(AcceleratorOptions options);
  const AcceleratorOptions& accelerator_options() const { return options_; }
  // What the model computes in, as these options say; of one rank's own, too.
  std::optional<DType> lowered() const { return precision_of(options_.mixed_precision); }
  // Makes model and optimizer what the strategy trains, until release() makes the model the plain
  // one again, with all its values on every rank. Both are collective. An optimizer of "zero1",
  // "zero2" or "fsdp" cannot be used after that; take prepared_optimizer()->state_dict() before.
  virtual void prepare();
  // Makes the model the plain one again, as above.
  virtual void release();
  // The same after an exception, without a word to other ranks, who may be gone: of "fsdp" the
  // model has no values then, and reading one says so.
  virtual void abandon() noexcept;
  // Of loaders that are whole the parts of this rank, from now on. Collective; so does run(). Error
  // where there is none to train with.
  void share_loaders(Start start = {});
  // Null while they are not prepared.
  PreparedModel* prepared_model() { return prepared_model_ ? &*prepared_model_ : nullptr; }
  PreparedOptimizer* prepared_optimizer() { return prepared_ ? &*prepared_ : nullptr; }
  // Until what is returned goes, every rank has all of the model, and may save it. Collective.
  [[nodiscard]] std::shared_ptr<void> whole_model();

  // Has every callback hear it, by order.
  void call(Event event);
  // Rank 0's decision, on all ranks. Collective.
  bool agreed(bool mine) const;
  // What the loss of the batch under way is the mean over, by `items`: of the y that made it.
  double count_items();
  // Of training, in all epochs: the share of the batches that are over.
  double pct_train() const;

  // What it trains, with what.
  Job& job;
  nn::Module model;                          // while it is prepared, as it is then
  std::shared_ptr<nn::Optimizer> optimizer;  // its rates can be set always
  LossFunction loss_function;
  ForwardFunction forward;  // null: model(batch.x)
  // What a batch's loss is the mean over, and counts by in its step; null: its samples.
  std::function<double(const data::Batch& batch)> items = nullptr;
  data::DataLoader* training_loader = nullptr;
  data::DataLoader* validation_loader = nullptr;  // null: no validation
  data::DataLoader* loader = nullptr;             // that runs
  std::vector<std::shared_ptr<Callback>> callbacks;

  // Where it is.
  bool training = false;
  int epoch = 0, epochs = 0;
  std::int64_t iter = 0, iters = 0;  // of the loader that runs, in its whole epoch
  std::int64_t train_iter = 0;       // batches learnt from in this run
  data::Batch batch;
  Tensor output, loss;                   // loss: one element, undefined without y
  std::optional<double> items_in_batch;  // once a loss, or count_items(), wanted it
  bool sync_gradients = true;            // false: the batch's gradients wait for those of the next
  double samples = 0;                    // of this rank in the step under way
  bool trial = false;  // a search for rates, or a validation alone: nothing is stopped or saved
  std::vector<Value> values;  // of the last epoch, the same on all ranks

 protected:
  // Of the optimizer, where there is one: its parameters are those to train, or to be judged.
  void go_to_training(bool trains);

 private:
  // f between an event and what comes after it, cancelled or not.
  template <Event before, class F>
  void with_events(F&& f);
  // What f throws on this rank is an Error on all.
  template <class F>
  void with_others(F&& f) const;
  // Error on all ranks where some are elsewhere: who cancels asks, and the end of a run, so that a
  // training without cancels has no collectives for it within.
  void in_step(std::string_view where) const;
  void leave_out_rest(Start start) const;
  void one_epoch(std::int64_t over);  // so many of its batches were before this run
  void train(std::int64_t over);
  void validate(data::DataLoader& with);
  void all_batches(data::DataLoader& of, std::int64_t over = 0);
  void one_batch();
  void backward();

  AcceleratorOptions options_;
  // The callbacks as they were at the last event, and in their order, in which a loop under way
  // holds on to them.
  std::vector<std::shared_ptr<Callback>> seen_;
  std::shared_ptr<const std::vector<std::shared_ptr<Callback>>> in_order_;
  std::unique_ptr<Accelerator> accelerator_;
  nn::Module plain_;
  std::optional<PreparedModel> prepared_model_;
  std::optional<PreparedOptimizer> prepared_;
  Shares shares_;
  std::int64_t training_iters_ = 0;  // in an epoch
};

}  // namespace peal::launch
