// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/learner/progress.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace peal::launch {

void ProgressCallback::before_fit(Loop&) {
  smooth_.reset();
  has_loss_ = false;
  last_ = Tensor();
}

// A pass begins with its first batch.
void ProgressCallback::before_batch(Loop& loop) {
  if (bar_) return;
  const char* const pass = loop.training ? "train" : "valid";
  bar_.emplace(
      loop.epochs == 0 ? pass : fmt::format("epoch {}/{} {}", loop.epoch + 1, loop.epochs, pass),
      loop.iters, loop.job.is_main(), to_);
  samples_ = 0;
  start_ = std::chrono::steady_clock::now();
}

void ProgressCallback::after_batch(Loop& loop) {
  done_ = loop.iter + 1;
  samples_ += loop.batch.size();
  if (loop.training && loop.loss.defined()) {
    has_loss_ = last_.defined();
    if (has_loss_) smooth_.add(last_.item<double>());
    last_ = loop.loss.detach();
  }
  if (bar_) bar_->update(done_, note(loop));
}

void ProgressCallback::end(const Loop& loop) {
  if (bar_) bar_->leave(done_, note(loop));
  bar_.reset();
}

std::string ProgressCallback::note(const Loop& loop) const {
  std::string text;
  if (loop.training && has_loss_) text = fmt::format("loss {:.4f}, ", smooth_.value());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = static_cast<double>(samples_ * loop.job.world()) / std::max(seconds, 1e-9);
  return text + fmt::format("{:.0f} samples/s", rate);
}

}  // namespace peal::launch
