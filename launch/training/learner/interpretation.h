// SPDX-License-Identifier: Apache-2.0
// Interpretation (fastai has it by this name): where a model is wrong. It is asked about every
// sample of a loader once, and what it said is kept: the samples with the largest losses, and for
// classes the confusion matrix, which two are taken for each other most often, and a report.
//
//   const auto found = launch::ClassificationInterpretation::from_learner(learner);
//   for (const auto& [actual, predicted, times] : found.most_confused(3)) ...
//   found.plot_confusion_matrix("confusion.svg");
//   for (const auto& [sample, loss] : found.top_losses(9)) ...    // of validation.dataset()
//
// What it knows is the same on all ranks; files are rank 0's. Thread safety: a value.
#pragma once

#include <peal/launch/training/learner/learner.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

class Interpretation {
 public:
  // Of the loader, or of that of the validation. Collective. Errors: as of Learner::get_preds();
  // samples without targets.
  static Interpretation from_learner(Learner& learner, data::DataLoader* loader = nullptr);

  // Predictions, targets, decoded and losses, row k of sample k (predictions.h).
  const Predictions& found() const { return found_; }

  struct Loss {
    std::int64_t sample;  // its number in the order that ranks share: of the set, without shuffle
    double loss;
  };
  // The k largest (0: all), the largest first, or the smallest. Of equal ones the first sample is
  // first; what is no number is above all.
  std::vector<Loss> top_losses(std::int64_t k = 0, bool largest = true) const;

 protected:
  Interpretation(Predictions found, bool is_main) : found_(std::move(found)), main_(is_main) {}
  bool is_main() const { return main_; }

 private:
  Predictions found_;
  bool main_;
};

class ClassificationInterpretation : public Interpretation {
 public:
  // Where the learner's classes have no names these are their numbers. What the loss ignores
  // (ignore_index), and a class below 0, is not counted. Errors also: a loss whose outputs are no
  // classes (outputs.h).
  static ClassificationInterpretation from_learner(Learner& learner,
                                                   data::DataLoader* loader = nullptr);

  // The names, in the order of their numbers.
  const std::vector<std::string>& vocab() const { return vocab_; }
  // [classes, classes] of i64: how often a class (row) was taken for one (column).
  Tensor confusion_matrix() const;

  struct Confused {
    std::string actual, predicted;
    std::int64_t times;
    bool operator==(const Confused&) const = default;
  };
  // What was taken for another class at least so often, most often first.
  std::vector<Confused> most_confused(std::int64_t min_val = 1) const;

  // As a picture (SVG). `normalize`: shares of a row. Error: the file cannot be written.
  void plot_confusion_matrix(const std::filesystem::path& path, bool normalize = false) const;
  // Precision, recall, F1 and how many there are of each class, and their means (scikit-learn:
  // classification_report).
  std::string classification_report() const;

 private:
  ClassificationInterpretation(Interpretation all, std::vector<std::string> vocab,
                               std::int64_t ignored);

  std::vector<std::string> vocab_;
  std::vector<std::int64_t> counts_;  // row by row
  std::int64_t count(std::size_t actual, std::size_t predicted) const {
    return counts_[actual * vocab_.size() + predicted];
  }
};

}  // namespace peal::launch
