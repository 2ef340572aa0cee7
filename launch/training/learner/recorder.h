// SPDX-License-Identifier: Apache-2.0
// Recorder (fastai has it by this name): losses, rates and metrics of a training, as numbers, as a
// table with a row an epoch, and as plots. Losses are means over the samples of all ranks, so every
// rank records the same as one rank with their batches together. A batch costs no wait, for a
// device or for other ranks: losses are looked at, and brought together, when the epoch's training
// is over, or where catch_up() asks for them. Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/csv_rows.h>
#include <peal/launch/training/learner/loop.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

// A mean that forgets, without its bias to where it began (fastai: AvgSmoothLoss): of 1, 2, 3 by
// 0.98 it is 1, 1.505050505, 2.013467555.
class SmoothLoss {
 public:
  // `beta`, in [0, 1), is what is kept of the mean at each new loss; add() takes one, reset()
  // forgets all.
  explicit SmoothLoss(double beta = 0.98) : beta_(beta) {}
  void add(double loss) {
    sum_ = beta_ * sum_ + (1 - beta_) * loss;
    left_ *= beta_;
  }
  double value() const;  // the mean loss; NaN of none
  void reset() { *this = SmoothLoss(beta_); }

 private:
  double beta_, sum_ = 0, left_ = 1;
};

// A row of fastai's table: texts padded to the width of their column (its name, at least 8), two
// blanks between them.
std::string table_row(const std::vector<std::string>& texts, const std::vector<std::string>& names);
// "00:07", "1:00:07".
std::string clock_text(double seconds);

class Recorder : public Callback {
 public:
  // `tell` gets rank 0's lines.
  Recorder(std::vector<NamedMetric> metrics, std::function<void(const std::string&)> tell);

  int order() const override { return 50; }
  void before_fit(Loop& loop) override;
  void before_epoch(Loop& loop) override;
  void after_batch(Loop& loop) override;
  void after_train(Loop& loop) override { catch_up(loop); }
  void after_validate(Loop& loop) override;
  void after_epoch(Loop& loop) override;
  void after_fit(Loop& loop) override { catch_up(loop); }
  // Records the losses of all batches so far. Collective.
  void catch_up(const Loop& loop);

  // Of each batch that was learnt from: the loss itself, its smooth mean, the last group's rate.
  // Losses as far as catch_up() or the end of an epoch's training.
  std::vector<double> batch_losses, losses, lrs;
  // Of each epoch: train_loss (smooth), valid_loss, metrics, as in the table.
  std::vector<std::vector<Value>> epochs;
  // What schedules set, by setting: a number a batch (schedule.h).
  std::map<std::string, std::vector<double>> settings;
  bool silent = false;
  bool judges = true;  // a validation without any target is an Error
  // Of a validation alone: valid_loss and metrics.
  std::vector<Value> validation;

  // SVG files, by rank 0 alone; on others nothing.
  void plot_loss(const std::filesystem::path& path, std::size_t skip_start = 0) const;
  void plot_sched(const std::filesystem::path& path) const;

 private:
  std::vector<std::string> names() const;
  void tell_row(const Loop& loop, const std::vector<std::string>& texts) const;
  void take_waiting();

  std::vector<NamedMetric> metrics_;
  std::function<void(const std::string&)> tell_;
  SmoothLoss smooth_;
  Tensors waiting_;              // losses of this rank that nobody has looked at
  std::vector<double> of_rank_;  // losses times samples, and samples, of batches before these
  std::vector<double> samples_;  // of the waiting ones
  double loss_sum_ = 0, loss_samples_ = 0;  // of this rank's validation
  double unjudged_ = 0;                     // samples of it without a target
  std::vector<double> ends_of_epochs_;      // in batches
  bool validates_ = false, main_ = true;
  std::chrono::steady_clock::time_point start_;
};

// Each epoch's row in a file, rank 0's (fastai: CSVLogger).
class CSVLogger : public Callback {
 public:
  // `append`: behind what the file has, else in its place.
  explicit CSVLogger(std::filesystem::path path = "history.csv", bool append = false)
      : path_(std::move(path)), append_(append) {}
  int order() const override { return 60; }
  void before_fit(Loop& loop) override;
  void after_epoch(Loop& loop) override;

 private:
  std::filesystem::path path_;
  bool append_;
  std::optional<CsvRows> rows_;
};

}  // namespace peal::launch
