// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/nn/checkpoint.h>

#include <algorithm>
#include <cmath>

namespace peal::launch {

GradientAccumulation::GradientAccumulation(std::int64_t n_acc) : n_acc_(n_acc) {
  PEAL_CHECK(n_acc >= 1, "[launch] learner: GradientAccumulation of ", n_acc,
             " samples; expected 1 or more");
}

void GradientAccumulation::before_backward(Loop& loop) {
  const double with_this = loop.samples + static_cast<double>(loop.batch.size());
  loop.sync_gradients =
      with_this >= static_cast<double>(n_acc_) || !loop.training_loader->has_next();
}

void GradientAccumulation::after_fit(Loop& loop) { loop.sync_gradients = true; }

void GradientClip::before_step(Loop& loop) {
  loop.accelerator().clip_grad_norm_(loop.model.parameters(), max_norm_, norm_type_);
}

TrackerCallback::TrackerCallback(std::string monitor, double min_delta)
    : monitor_(std::move(monitor)),
      min_delta_(std::abs(min_delta)),
      less_(monitor_.find("loss") != std::string::npos ||
            monitor_.find("err") != std::string::npos) {}

void TrackerCallback::before_fit(Loop&) { any_ = new_best_ = false; }

void TrackerCallback::after_epoch(Loop& loop) {
  if (loop.trial) return;
  std::string names;
  const Value* found = nullptr;
  for (const Value& each : loop.values) {
    if (each.name == monitor_) found = &each;
    names += (names.empty() ? "" : ", ") + each.name;
  }
  PEAL_CHECK(found != nullptr, "[launch] learner: there is no ", monitor_,
             " to look at after an epoch; there are ", names);
  const double gain = less_ ? best_ - found->value : found->value - best_;
  new_best_ = loop.agreed(any_ ? gain > min_delta_ : !std::isnan(found->value));
  if (!new_best_) return;
  any_ = true;
  best_ = found->value;
}

void EarlyStoppingCallback::before_fit(Loop& loop) {
  TrackerCallback::before_fit(loop);
  waited_ = 0;
}

void EarlyStoppingCallback::after_epoch(Loop& loop) {
  if (loop.trial) return;
  TrackerCallback::after_epoch(loop);
  waited_ = new_best() ? 0 : waited_ + 1;
  if (waited_ >= patience_) throw CancelFitException();
}

void ReduceLROnPlateau::before_fit(Loop& loop) {
  TrackerCallback::before_fit(loop);
  waited_ = 0;
}

void ReduceLROnPlateau::after_epoch(Loop& loop) {
  if (loop.trial) return;
  TrackerCallback::after_epoch(loop);
  waited_ = new_best() ? 0 : waited_ + 1;
  if (waited_ < patience_) return;
  waited_ = 0;
  for (std::size_t g = 0; g < loop.optimizer->group_count(); ++g) {
    loop.optimizer->set_lr(std::max(loop.optimizer->lr(g) / factor_, min_lr_), g);
  }
}

void TerminateOnNaNCallback::before_backward(Loop& loop) {
  const double bad = std::isfinite(loop.loss.detach().item<double>()) ? 0 : 1;
  const Tensor any = Tensor::scalar(bad, Device{});
  if (loop.job.world() > 1) {
    loop.job.group().all_reduce(any, comm::ReduceOp::max, {"a loss that is no number"}).wait();
  }
  if (any.item<double>() > 0) throw CancelFitException();
}

void SaveModelCallback::before_fit(Loop& loop) {
  TrackerCallback::before_fit(loop);
  saved_ = false;
}

void SaveModelCallback::after_epoch(Loop& loop) {
  if (loop.trial) return;
  TrackerCallback::after_epoch(loop);
  if (!new_best()) return;
  saved_ = true;
  const auto whole = loop.whole_model();
  if (!loop.job.is_main()) return;
  const auto busy = loop.job.group().busy("saves the best model");
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path());
  nn::save_model(path_, loop.model);
}

void SaveModelCallback::after_fit(Loop& loop) {
  if (!saved_) return;
  loop.agreed(true);  // rank 0 has written
  const auto whole = loop.whole_model();
  nn::load_model(path_, loop.model);
}

}  // namespace peal::launch
