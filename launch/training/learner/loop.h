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
// On several ranks the model is wrapped in DistributedDataParallel; each loss is the mean over the
// rank's batch and counts by its samples, so gradients are those of the mean over all samples of
// the step, of all ranks and of the batches that were accumulated. Loaders are each rank's share of
// the data (Error on all ranks where one has all of it, or where a validation's would repeat
// samples). What escapes on one rank, or a cancel on some ranks alone, is an Error on all.
//
// A run can begin where another one stopped (Start): what it computes from there on is that run's,
// bit for bit, where model, optimizer, random numbers and loader are as they were. Where that was
// is `epoch` and `iter` after a batch, and a callback that ends a run there (after so many steps,
// say) throws CancelFitException from after_batch. Thread safety: the rank's thread.
#pragma once

#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/learner/events.h>
#include <peal/nn/amp/grad_scaler.h>
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

// Where a run begins: in which epoch, and after how many of its batches. The training loader stands
// there: its state was loaded (load_state_dict), or they were left out (skip_first_batches).
struct Start {
  int epoch = 0;
  std::int64_t iter = 0;
};

class Loop {
 public:
  using LossFunction = std::function<Tensor(const Tensor& output, const Tensor& y)>;
  using ForwardFunction = std::function<Tensor(nn::Module& model, const data::Batch& batch)>;

  explicit Loop(Job& j) : job(j) {}
  virtual ~Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Epochs of training up to that number, each with a validation where there is a loader for it.
  // Collective. Error, on all ranks, where their starts differ, or a loader stands elsewhere.
  void run(int number_of_epochs, Start start = {});
  // One validation, with its events. Collective.
  void run_validation(data::DataLoader& loader);
  void call(Event event);
  // Rank 0's decision, on all ranks. Collective.
  bool agreed(bool mine) const;
  // Of training, in all epochs: the share of the batches that are over.
  double pct_train() const;

  // What it trains, with what.
  Job& job;
  nn::Module model;
  std::shared_ptr<nn::Optimizer> optimizer;
  LossFunction loss_function;
  ForwardFunction forward;  // null: model(batch.x)
  data::DataLoader* training_loader = nullptr;
  data::DataLoader* validation_loader = nullptr;  // null: no validation
  std::vector<std::shared_ptr<Callback>> callbacks;
  std::optional<DType> lowered;            // ops compute in it, by Autocast
  std::unique_ptr<nn::GradScaler> scaler;  // null: losses are not scaled

  // Where it is.
  bool training = false;
  int epoch = 0, epochs = 0;
  std::int64_t iter = 0, iters = 0;  // of the loader that runs, in its whole epoch
  std::int64_t train_iter = 0;       // batches learnt from in this run
  data::Batch batch;
  Tensor output, loss;         // loss: one element, undefined without y
  bool sync_gradients = true;  // false: the batch's gradients wait for those of the next
  double samples = 0;          // of this rank in the step under way
  bool trial = false;  // a search for rates, or a validation alone: nothing is stopped or saved
  std::vector<Value> values;  // of the last epoch, the same on all ranks

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
  void check_share(const data::DataLoader& loader, bool validates, Start start = {}) const;
  void one_epoch();
  void train();
  void validate(data::DataLoader& loader);
  void all_batches(data::DataLoader& loader, std::int64_t over = 0);
  void one_batch();
  void backward();
  void step();

  std::int64_t over_ = 0;            // of the first epoch's batches, before this run
  std::int64_t training_iters_ = 0;  // in an epoch
};

}  // namespace peal::launch
