// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/metrics/classification.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// Scores as [places, C] on the host, and the classes of the places.
struct Places {
  Tensor scores;  // f64
  std::vector<std::int64_t> classes;
};
Places places_of(const char* who, const Tensor& scores, const Tensor& classes) {
  bool fits = scores.dim() >= 2 && classes.dim() == scores.dim() - 1 &&
              classes.dtype() == DType::i64 && scores.size(1) > 0;
  std::vector<int> order{0};
  for (int i = 1; fits && i < classes.dim(); ++i) {
    fits = classes.size(i) == scores.size(i + 1);
    order.push_back(i + 1);
  }
  PEAL_CHECK(fits && classes.size(0) == scores.size(0), who,
             ": expected scores [N, C, ...] and i64 classes [N, ...], got ", scores.dtype(), " ",
             scores.shape(), " and ", classes.dtype(), " ", classes.shape());
  order.push_back(1);
  const Tensor last = scores.dim() == 2 ? scores : permute(scores, order);
  const Tensor wide = cast(last, DType::f64);
  return {reshape(wide, {classes.numel(), scores.size(1)}).to(Device{}),
          classes.to_vector<std::int64_t>()};
}

// f(the scores of a place, its class) for each that counts.
template <class F>
void for_each_place(const char* who, const Places& places, std::int64_t ignored, const F& f) {
  const std::int64_t count = places.scores.size(1);
  const double* row = places.scores.data<double>();
  for (std::size_t i = 0; i < places.classes.size(); ++i, row += count) {
    const std::int64_t c = places.classes[i];
    if (c == ignored) continue;
    PEAL_CHECK(c >= 0 && c < count, who, ": class of place ", i, " is ", c,
               ", expected one in [0, ", count, ")");
    f(row, c);
  }
}

double share(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

// How often a score of one that is of the class is above one that is not, in halves.
double halves_above(std::vector<std::pair<double, bool>>& scored) {
  std::ranges::sort(scored);
  double halves = 0, below = 0;
  for (std::size_t i = 0, end = 0; i < scored.size(); i = end) {
    double of_class = 0, others = 0;
    for (; end < scored.size() && scored[end].first == scored[i].first; ++end) {
      (scored[end].second ? of_class : others) += 1;
    }
    halves += of_class * (2 * below + others);
    below += others;
  }
  return halves;
}

std::int64_t best_of(const double* row, std::int64_t count) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < count; ++j) {
    if (row[j] > row[best] || (std::isnan(row[j]) && !std::isnan(row[best]))) best = j;
  }
  return best;
}

}  // namespace

TopKAccuracy::TopKAccuracy(std::int64_t k, std::int64_t ignore_index)
    : Metric(2), k_(k), ignored_(ignore_index) {
  PEAL_CHECK(k >= 1, "TopKAccuracy: expected k of at least 1, got ", k);
}

void TopKAccuracy::add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) {
  const Places places = places_of("TopKAccuracy", scores, classes);
  const std::int64_t count = places.scores.size(1);
  for_each_place("TopKAccuracy", places, ignored_, [&](const double* row, std::int64_t c) {
    std::int64_t above = std::isnan(row[c]) ? k_ : 0;
    for (std::int64_t j = 0; j < count; ++j) {  // a NaN is above all
      above += j < c ? !(row[j] < row[c]) : !(row[j] <= row[c]);
    }
    sums[0] += above < k_;
    sums[1] += 1;
  });
}
double TopKAccuracy::of(const std::vector<double>& sums) const { return share(sums[0], sums[1]); }

void Accuracy::add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) {
  const Places places = places_of("Accuracy", scores, classes);
  const std::int64_t count = places.scores.size(1);
  for_each_place("Accuracy", places, ignored_, [&](const double* row, std::int64_t c) {
    sums[0] += best_of(row, count) == c;
    sums[1] += 1;
  });
}
double Accuracy::of(const std::vector<double>& sums) const { return share(sums[0], sums[1]); }

void Perplexity::add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) {
  // Each place's loss is the same in any batch; added up in f64.
  const Tensor each = cross_entropy(scores, classes, Reduction::none, ignored_);
  sums[0] += sum(cast(each, DType::f64)).item<double>();
  for (const std::int64_t c : classes.to_vector<std::int64_t>()) sums[1] += c != ignored_;
}
double Perplexity::of(const std::vector<double>& sums) const {
  return std::exp(share(sums[0], sums[1]));
}

ConfusionMatrix::ConfusionMatrix(std::int64_t classes, std::int64_t ignore_index)
    : Metric(static_cast<std::size_t>(classes * classes)),
      classes_(classes),
      ignored_(ignore_index) {}

void ConfusionMatrix::add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) {
  const Places places = places_of("ConfusionMatrix", scores, classes);
  PEAL_CHECK(places.scores.size(1) == classes_, "ConfusionMatrix: expected scores of ", classes_,
             " classes, got shape ", scores.shape());
  for_each_place("ConfusionMatrix", places, ignored_, [&](const double* row, std::int64_t c) {
    sums[static_cast<std::size_t>(c * classes_ + best_of(row, classes_))] += 1;
  });
}

double ConfusionMatrix::at(const std::vector<double>& sums, std::int64_t truth,
                           std::int64_t guess) const {
  return sums[static_cast<std::size_t>(truth * classes_ + guess)];
}

double ConfusionMatrix::of(const std::vector<double>& sums) const {
  double right = 0, all = 0;
  for (std::int64_t c = 0; c < classes_; ++c) right += at(sums, c, c);
  for (const double count : sums) all += count;
  return share(right, all);
}

Tensor ConfusionMatrix::as_matrix(const std::vector<double>& sums) const {
  const std::vector<std::int64_t> counts(sums.begin(), sums.end());
  return Tensor::from(counts, {classes_, classes_}, Device{});
}

ClassScore::ClassScore(Score score, std::int64_t classes, Average average,
                       std::int64_t ignore_index)
    : ConfusionMatrix(classes, ignore_index), score_(score), average_(average) {
  PEAL_CHECK(average != Average::binary || classes == 2,
             "ClassScore: binary is of two classes, got ", classes);
}

double ClassScore::of_class(const std::vector<double>& sums, std::int64_t c) const {
  double taken = 0, there = 0;
  for (std::int64_t j = 0; j < classes(); ++j) {
    taken += at(sums, j, c);
    there += at(sums, c, j);
  }
  const double right = at(sums, c, c);
  const double whole = score_ == Score::precision ? taken
                       : score_ == Score::recall  ? there
                                                  : (taken + there) / 2;
  return whole > 0 ? right / whole : 0;
}

double ClassScore::of(const std::vector<double>& sums) const {
  const double accuracy = ConfusionMatrix::of(sums);
  if (average_ == Average::micro || std::isnan(accuracy)) return accuracy;
  if (average_ == Average::binary) return of_class(sums, 1);
  double total = 0;
  for (std::int64_t c = 0; c < classes(); ++c) total += of_class(sums, c);
  return total / static_cast<double>(classes());
}

AUROC::AUROC(std::int64_t classes, std::int64_t ignore_index)
    : Metric(0), classes_(classes), ignored_(ignore_index) {
  PEAL_CHECK(classes >= 2, "AUROC: expected at least two classes, got ", classes);
}

// A row a place: its scores and its class.
void AUROC::add(const Tensor& scores, const Tensor& classes, std::vector<double>& sums) {
  Tensor each = scores;
  if (classes_ == 2 && scores.shape() == classes.shape()) {
    const Tensor one = cast(scores, DType::f64);
    each = stack({zeros_like(one), one}, 1);
  }
  const Places places = places_of("AUROC", each, classes);
  PEAL_CHECK(places.scores.size(1) == classes_, "AUROC: expected scores of ", classes_,
             " classes, got shape ", scores.shape());
  std::vector<double> rows;
  for_each_place("AUROC", places, ignored_, [&](const double* row, auto c) {
    PEAL_CHECK(std::none_of(row, row + classes_, [](double s) { return std::isnan(s); }),
               "AUROC: a score of a place of class ", c, " is NaN, of which there is no order");
    const bool ordered = classes_ == 2 ? !std::isnan(row[1] - row[0])
                                       : std::isfinite(*std::max_element(row, row + classes_));
    PEAL_CHECK(ordered, "AUROC: the logits of a place of class ", c,
               " are infinite, and have no softmax, so there is no order of them");
    rows.insert(rows.end(), row, row + classes_);
    rows.push_back(static_cast<double>(c));
  });
  sums.insert(sums.end(), rows.begin(), rows.end());
}

double AUROC::of(const std::vector<double>& sums) const {
  const auto count = static_cast<std::size_t>(classes_), width = count + 1;
  bool logits = false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    logits |= i % width < count && !(sums[i] >= 0 && sums[i] <= 1);
  }
  std::vector<double> rows = sums;  // by what places are in order for each class
  for (std::size_t at = 0; logits && at < rows.size(); at += width) {
    double* const row = &rows[at];
    if (count == 2) {
      row[1] -= row[0];
      continue;
    }
    const double most = *std::max_element(row, row + count);
    double all = 0;
    for (std::size_t i = 0; i < count; ++i) all += row[i] = std::exp(row[i] - most);
    for (std::size_t i = 0; i < count; ++i) row[i] /= all;
  }
  const std::size_t first = count == 2 ? 1 : 0;
  double total = 0;
  for (std::size_t c = first; c < count; ++c) {
    std::vector<std::pair<double, bool>> scored;
    for (std::size_t at = 0; at < rows.size(); at += width) {
      scored.emplace_back(rows[at + c], rows[at + count] == static_cast<double>(c));
    }
    const auto there = static_cast<double>(
        std::ranges::count_if(scored, [](const auto& each) { return each.second; }));
    const double pairs = there * (static_cast<double>(scored.size()) - there);
    total += share(halves_above(scored) / 2, pairs);
  }
  return total / static_cast<double>(count - first);
}

std::vector<double> AUROC::over(const comm::ProcessGroup& group) const {
  std::vector<double> all;
  for (const std::vector<double>& each : gather(group)) {
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

}  // namespace peal::nn
