// SPDX-License-Identifier: Apache-2.0
// ProgressCallback (fastai has it by this name): a bar for each pass over the data, with rank 0's
// smooth loss, a batch late, so that no device is waited for, samples a second of all ranks and the
// time that is left. Rank 0's alone; at a terminal one line that changes, elsewhere a line every
// tenth of the way (progress_bar.h). The table of epochs is LearnerOptions::tell's. Thread safety:
// the rank's thread.
#pragma once

#include <peal/launch/progress_bar.h>
#include <peal/launch/training/learner/recorder.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace peal::launch {

class ProgressCallback : public Callback {
 public:
  // Where rank 0's bar is drawn; other ranks draw none.
  explicit ProgressCallback(const ProgressOutput& to = {}) : to_(to) {}
  int order() const override { return 55; }
  void before_fit(Loop& loop) override;
  void before_batch(Loop& loop) override;
  void after_batch(Loop& loop) override;
  void after_train(Loop& loop) override { end(loop); }
  void after_validate(Loop& loop) override { end(loop); }
  // Of a pass that was cancelled together with what it is a part of.
  void after_epoch(Loop& loop) override { end(loop); }
  void after_fit(Loop& loop) override { end(loop); }

 private:
  void end(const Loop& loop);
  std::string note(const Loop& loop) const;

  ProgressOutput to_;
  SmoothLoss smooth_;
  bool has_loss_ = false;
  Tensor last_;  // a loss that nobody has looked at
  std::optional<ProgressBar> bar_;
  std::int64_t done_ = 0, samples_ = 0;  // batches; samples of this rank
  std::chrono::steady_clock::time_point start_;
};

}  // namespace peal::launch
