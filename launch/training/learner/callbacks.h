// SPDX-License-Identifier: Apache-2.0
// Callbacks that trainings often want (fastai has them by these names). What epochs have shown is
// judged once, by rank 0, for all. Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/accumulation.h>
#include <peal/launch/training/learner/loop.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace peal::launch {

// A step of the optimizer is of so many of a rank's samples (ranks' batches are of equal sizes), or
// the first batch that reaches them; an epoch's last step may be of fewer (LastGroup::keep). Each
// sample counts alike.
class GradientAccumulation : public Callback {
 public:
  // Error for less than one sample.
  explicit GradientAccumulation(std::int64_t n_acc = 32);
  void before_backward(Loop& loop) override;
  void after_fit(Loop& loop) override;

 private:
  std::int64_t n_acc_;
};

// Before a step the norm of all gradients becomes max_norm, where it is larger.
class GradientClip : public Callback {
 public:
  // max_norm is the norm of all gradients as one vector; norm_type 2 is the root of the sum of
  // squares.
  explicit GradientClip(double max_norm = 1, double norm_type = 2)
      : max_norm_(max_norm), norm_type_(norm_type) {}
  int order() const override { return 11; }
  void before_step(Loop& loop) override;

 private:
  double max_norm_, norm_type_;
};

// Looks at a value of each epoch, by its name in the table. What is better: less, for a loss or an
// error; else more. NaN is never better.
class TrackerCallback : public Callback {
 public:
  // `min_delta`: by how much a value has to be better to count, in its own unit.
  explicit TrackerCallback(std::string monitor = "valid_loss", double min_delta = 0);
  int order() const override { return 60; }
  void before_fit(Loop& loop) override;
  // Error for a value that there is not, which names those that there are.
  void after_epoch(Loop& loop) override;
  // The best value so far, in its unit.
  double best() const { return best_; }
  bool new_best() const { return new_best_; }

 private:
  std::string monitor_;
  double min_delta_, best_ = 0;
  bool less_, any_ = false, new_best_ = false;
};

// Ends the training after `patience` epochs without a better value.
class EarlyStoppingCallback : public TrackerCallback {
 public:
  // `patience` in epochs; min_delta in the value's unit.
  explicit EarlyStoppingCallback(std::string monitor = "valid_loss", double min_delta = 0,
                                 int patience = 1)
      : TrackerCallback(std::move(monitor), min_delta), patience_(patience) {}
  void before_fit(Loop& loop) override;
  void after_epoch(Loop& loop) override;

 private:
  int patience_, waited_ = 0;
};

// After `patience` epochs without a better value the rates become a `factor`-th, or min_lr. In a
// fit with a schedule of rates that has the last word.
class ReduceLROnPlateau : public TrackerCallback {
 public:
  // `patience` in epochs; min_delta in the value's unit; rates are divided by `factor`, down to
  // min_lr.
  explicit ReduceLROnPlateau(std::string monitor = "valid_loss", double min_delta = 0,
                             int patience = 1, double factor = 10, double min_lr = 0)
      : TrackerCallback(std::move(monitor), min_delta),
        patience_(patience),
        factor_(factor),
        min_lr_(min_lr) {}
  void before_fit(Loop& loop) override;
  void after_epoch(Loop& loop) override;

 private:
  int patience_, waited_ = 0;
  double factor_, min_lr_;
};

// Ends the training after a batch whose loss is no number, or infinite, on any rank: before it is
// learnt from. Of several ranks a small collective a batch.
class TerminateOnNaNCallback : public Callback {
 public:
  int order() const override { return -9; }
  void before_backward(Loop& loop) override;
};

// Rank 0 saves the best model (nn::save_model); after the fit all ranks load it.
class SaveModelCallback : public TrackerCallback {
 public:
  // The file that is written; min_delta in the value's unit.
  explicit SaveModelCallback(std::filesystem::path path, std::string monitor = "valid_loss",
                             double min_delta = 0)
      : TrackerCallback(std::move(monitor), min_delta), path_(std::move(path)) {}
  void before_fit(Loop& loop) override;
  void after_epoch(Loop& loop) override;
  void after_fit(Loop& loop) override;

 private:
  std::filesystem::path path_;
  bool saved_ = false;
};

}  // namespace peal::launch
