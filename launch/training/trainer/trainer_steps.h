// SPDX-License-Identifier: Apache-2.0
// What the Trainer does at the events of the loop: it counts updates and their losses, calls the
// Trainer's callbacks, and logs, evaluates, saves and stops as they and the arguments want it.
// Thread safety: the rank's thread.
#pragma once

#include <peal/launch/progress_bar.h>
#include <peal/launch/training/termination.h>
#include <peal/launch/training/trainer/trainer.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

namespace peal::launch {

// The losses of steps, of all ranks together: of each step the sum of batches' losses times what
// they are means over, and the sum of these. A part of checkpoints.
class StepLosses {
 public:
  explicit StepLosses(const Job& job) : job_(&job) {}
  void add(const Tensor& loss, double items);  // a batch's
  void end_step();                             // all ranks add theirs up now and then: collective
  std::int64_t steps() const { return folded_steps_ + std::ssize(sums_); }  // since take()
  // The mean of those steps' losses. Collective.
  double take();
  // The mean of all steps' losses. Collective.
  double of_all() const;

  void consolidate_state_dict(int to);
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  std::vector<double> numbers() const;  // this rank's: of each step the sum, then the items
  double sum_over_ranks() const;

  const Job* job_;
  Tensor group_;  // f64, of the step under way
  double items_ = 0;
  // The sum of the losses of steps since take(), as all ranks know it, and of those after them what
  // this rank had: f64 [], and of how many items.
  double folded_ = 0;
  std::int64_t folded_steps_ = 0;
  std::vector<Tensor> sums_;
  std::vector<double> all_items_;
  double before_ = 0;  // the sum of the losses of the steps before
  std::int64_t steps_before_ = 0;
  Tensor gathered_;  // [ranks, 1 + 2 steps] of all ranks: how many steps, and numbers()
};

class TrainerSteps : public Callback {
 public:
  TrainerSteps(Trainer& trainer, const Job& job) : losses(job), trainer_(trainer) {}
  int order() const override { return 40; }
  void before_fit(Loop& loop) override;
  void before_epoch(Loop& loop) override;
  void after_epoch(Loop& loop) override;
  void before_batch(Loop& loop) override;
  void after_pred(Loop& loop) override;
  void after_loss(Loop& loop) override;
  void before_backward(Loop& loop) override;
  void before_step(Loop& loop) override;
  void after_step(Loop& loop) override;
  void after_batch(Loop& loop) override;

  using Moment = void (TrainerCallback::*)(Trainer&, TrainerControl&);
  void call(Moment moment);

  StepLosses losses;
  double items = 0;      // what the loss of the batch under way is the mean over
  Tensor computed;       // compute_loss' of the batch under way
  bool judging = false;  // an evaluation is under way, of which its own callback takes care
  bool terminated = false;
  bool epoch_ended = false;  // its last batch is over, or what is to come of it is left out
  std::optional<Termination> termination;
  std::optional<ProgressBar> bar;

 private:
  void wish_by_step();
  void wish_by_epoch();
  // All ranks' wishes become each one's. Collective.
  void agree();
  // Logs, evaluates and saves, as was wished for.
  void act(bool epoch_is_over);
  void log_losses();
  bool past_delay() const;

  Trainer& trainer_;
  TrainerControl control_;
  std::int64_t batches_ = 0;  // of the step under way
  std::int64_t learnt_ = 0;   // loop.train_iter, as it was seen last
  Tensor norm_;
};

}  // namespace peal::launch
