// SPDX-License-Identifier: Apache-2.0
// Metrics of classes. Scores are [N, C] or [N, C, d...], classes i64 [N] or [N, d...]; a place
// whose class is ignore_index does not count.
#pragma once

#include <peal/nn/metrics/metric.h>

namespace peal::nn {

// The share of places whose class is among the k of the largest scores, the first of equals before
// the others: a model that says the same of all classes is right by chance alone. Never where the
// class' score is NaN; that of another is above all.
class TopKAccuracy : public Metric {
 public:
  explicit TopKAccuracy(std::int64_t k, std::int64_t ignore_index = -100);

 protected:
  void add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) override;
  double of(const std::vector<double>& sums) const override;

 private:
  std::int64_t k_, ignored_;
};

// The share of places whose class has the largest score, the first of equals.
class Accuracy : public Metric {
 public:
  explicit Accuracy(std::int64_t ignore_index = -100) : Metric(2), ignored_(ignore_index) {}

 protected:
  void add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) override;
  double of(const std::vector<double>& sums) const override;

 private:
  std::int64_t ignored_;
};

// What is missing from it to 1.
class ErrorRate : public Accuracy {
 public:
  using Accuracy::Accuracy;

 protected:
  double of(const std::vector<double>& sums) const override { return 1 - Accuracy::of(sums); }
};

// exp of the mean of cross_entropy over the places.
class Perplexity : public Metric {
 public:
  explicit Perplexity(std::int64_t ignore_index = -100) : Metric(2), ignored_(ignore_index) {}

 protected:
  void add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) override;
  double of(const std::vector<double>& sums) const override;

 private:
  std::int64_t ignored_;
};

// How often class i was taken for class j; its value is the share on the diagonal.
class ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(std::int64_t classes, std::int64_t ignore_index = -100);
  // [classes, classes] of i64, a row a true class: of this rank; of all ranks (collective).
  Tensor matrix() const { return as_matrix(sums()); }
  Tensor matrix(const comm::ProcessGroup& group) const { return as_matrix(over(group)); }

 protected:
  void add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) override;
  double of(const std::vector<double>& sums) const override;
  double at(const std::vector<double>& sums, std::int64_t truth, std::int64_t guess) const;
  std::int64_t classes() const { return classes_; }

 private:
  Tensor as_matrix(const std::vector<double>& sums) const;
  std::int64_t classes_, ignored_;
};

// binary: of class 1 of two; macro: the mean over the classes; micro: over all decisions alike,
// which is the accuracy.
enum class Average : std::uint8_t { binary, macro, micro };

// Of a class: precision, the share that is right of what was taken for it; recall, the share of it
// that was found; F1, their harmonic mean. 0 where nothing is divided by nothing.
enum class Score : std::uint8_t { precision, recall, f1 };
class ClassScore : public ConfusionMatrix {
 public:
  ClassScore(Score score, std::int64_t classes, Average average, std::int64_t ignore_index = -100);

 protected:
  double of(const std::vector<double>& sums) const override;

 private:
  double of_class(const std::vector<double>& sums, std::int64_t c) const;
  Score score_;
  Average average_;
};
template <Score score>
class ClassScoreOf : public ClassScore {
 public:
  explicit ClassScoreOf(std::int64_t classes = 2, Average average = Average::macro,
                        std::int64_t ignore_index = -100)
      : ClassScore(score, classes, average, ignore_index) {}
};
using Precision = ClassScoreOf<Score::precision>;
using Recall = ClassScoreOf<Score::recall>;
using F1Score = ClassScoreOf<Score::f1>;

// The area under the curve of true over false positives (torchmetrics: AUROC; fastai: RocAuc): how
// often a place of the class scores above one of another class, equals counting half, which is
// counted and so exact (Hanley and McNeil, 1982). Of two classes, class 1's; of more, the mean of
// each class against the rest. Scores are probabilities where all that came lie in [0, 1], else
// logits, of which softmax is taken, as torchmetrics does for each batch; they may also be shaped
// as the classes are: of class 1. NaN where a class has no place, or all. Keeps every place that
// counts, and on all ranks those of all. Error for a score that is NaN: it has no place in an
// order; nor have infinite logits, but for one of two classes, or -inf beside a finite one.
class AUROC : public Metric {
 public:
  explicit AUROC(std::int64_t classes = 2, std::int64_t ignore_index = -100);

 protected:
  void add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) override;
  double of(const std::vector<double>& sums) const override;
  std::vector<double> over(const comm::ProcessGroup& group) const override;

 private:
  std::int64_t classes_, ignored_;
};

}  // namespace peal::nn
