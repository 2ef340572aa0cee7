// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/draw/escaped.h>
#include <peal/launch/training/learner/interpretation.h>
#include <peal/nn/loss.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <string_view>

namespace peal::launch {
namespace {

constexpr const char* interpretation_name = "[launch] interpretation: ";

// From white to a dark blue, as matplotlib's "Blues".
std::string blue(double share) {
  const auto mix = [&](int from, int to) { return std::lround(from + share * (to - from)); };
  return fmt::format("rgb({},{},{})", mix(247, 8), mix(251, 48), mix(255, 107));
}

struct MatrixPicture {
  const std::vector<std::string>& names;
  double cell = 44, left = 0, top = 44;

  explicit MatrixPicture(const std::vector<std::string>& of) : names(of) {
    std::size_t longest = 1;
    for (const std::string& each : names) longest = std::max(longest, each.size());
    left = 44 + 7.5 * static_cast<double>(longest);
  }
  double side() const { return cell * static_cast<double>(names.size()); }
  double at(std::size_t k) const { return cell * (static_cast<double>(k) + 0.5); }

  std::string box(std::size_t row, std::size_t column, double share,
                  const std::string& said) const {
    const double x = left + cell * static_cast<double>(column);
    const double y = top + cell * static_cast<double>(row);
    return fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}'/>\n"
        "<text x='{:.1f}' y='{:.1f}' text-anchor='middle' fill='{}'>{}</text>\n",
        x, y, cell, cell, blue(share), x + cell / 2, y + cell / 2 + 4,
        share > 0.5 ? "white" : "black", said);
  }
  std::string names_beside() const {
    std::string all;
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string name = comm::escaped(names[k]);
      all += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n", left - 6,
                         top + at(k) + 4, name);
      const double x = left + at(k) + 4, y = top + side() + 10;
      all += fmt::format(
          "<text x='{0:.1f}' y='{1:.1f}' text-anchor='end' transform='rotate(-90 {0:.1f} {1:.1f})'>"
          "{2}</text>\n",
          x, y, name);
    }
    return all;
  }
  std::string whole(const std::string& boxes) const {
    const double width = left + side() + 20, height = top + side() + left;
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 "
        "{0:.0f} {1:.0f}' font-family='sans-serif' font-size='12'>\n"
        "<rect width='100%' height='100%' fill='white'/>\n"
        "<text x='{2:.1f}' y='24' text-anchor='middle' font-size='15'>Confusion matrix</text>\n"
        "<text x='16' y='{3:.1f}' text-anchor='middle' transform='rotate(-90 16 {3:.1f})'>Actual"
        "</text>\n<text x='{2:.1f}' y='{4:.1f}' text-anchor='middle'>Predicted</text>\n{5}{6}"
        "</svg>\n",
        width, height, left + side() / 2, top + side() / 2, height - 8, boxes, names_beside());
  }
};

struct ClassFigures {
  double precision = 0, recall = 0, f1 = 0;
  std::int64_t support = 0;
};

// What counts as no class; -1, as all below 0 do, where the loss is not known.
std::int64_t ignored_by(const Loop::LossFunction& loss) {
  if (const auto* known = loss.target<nn::CrossEntropyLoss>()) return known->ignore_index;
  if (const auto* known = loss.target<nn::NLLLoss>()) return known->ignore_index;
  return -1;
}

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

}  // namespace

Interpretation Interpretation::from_learner(Learner& learner, data::DataLoader* loader) {
  Predictions found = learner.get_preds(loader, {.with_decoded = true, .with_loss = true});
  return {std::move(found), learner.job.is_main()};
}

std::vector<Interpretation::Loss> Interpretation::top_losses(std::int64_t k, bool largest) const {
  std::vector<Loss> all;
  for (const double each : cast(found_.losses, DType::f64).to_vector<double>()) {
    all.push_back({std::ssize(all), each});
  }
  const auto height = [](const Loss& each) {
    return std::isnan(each.loss) ? std::numeric_limits<double>::infinity() : each.loss;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Loss& a, const Loss& b) {
    return largest ? height(a) > height(b) : height(a) < height(b);
  });
  if (k > 0 && k < std::ssize(all)) all.resize(static_cast<std::size_t>(k));
  return all;
}

ClassificationInterpretation ClassificationInterpretation::from_learner(Learner& learner,
                                                                        data::DataLoader* loader) {
  return {Interpretation::from_learner(learner, loader), learner.classes(),
          ignored_by(learner.loss_function)};
}

ClassificationInterpretation::ClassificationInterpretation(Interpretation all,
                                                           std::vector<std::string> vocab,
                                                           std::int64_t ignored)
    : Interpretation(std::move(all)), vocab_(std::move(vocab)) {
  const Tensor &decoded = found().decoded, &targets = found().targets;
  PEAL_CHECK(decoded.dtype() == DType::i64 && decoded.shape() == targets.shape() &&
                 found().predictions.dim() >= 2,
             interpretation_name, "expected classes, i64, for targets ", targets.shape(),
             ", got what is read as ", decoded.dtype(), ' ', decoded.shape(),
             "; take Interpretation for what is no class");
  if (vocab_.empty()) {
    for (std::int64_t c = 0; c < found().predictions.size(1); ++c) {
      vocab_.push_back(std::to_string(c));
    }
  }
  counts_.resize(vocab_.size() * vocab_.size());
  const auto predicted = decoded.to_vector<std::int64_t>(),
             actual = targets.to_vector<std::int64_t>();
  const auto classes = std::ssize(vocab_);
  for (std::size_t k = 0; k < actual.size(); ++k) {
    if (actual[k] < 0 || actual[k] == ignored) continue;
    PEAL_CHECK(actual[k] < classes && predicted[k] < classes, interpretation_name, "of ", classes,
               " classes there is one of number ", std::max(actual[k], predicted[k]));
    ++counts_[static_cast<std::size_t>(actual[k] * classes + predicted[k])];
  }
}

Tensor ClassificationInterpretation::confusion_matrix() const {
  return Tensor::from(counts_, {std::ssize(vocab_), std::ssize(vocab_)}, Device{});
}

std::vector<ClassificationInterpretation::Confused> ClassificationInterpretation::most_confused(
    std::int64_t min_val) const {
  std::vector<Confused> all;
  for (std::size_t a = 0; a < vocab_.size(); ++a) {
    for (std::size_t p = 0; p < vocab_.size(); ++p) {
      if (a != p && count(a, p) >= min_val) all.push_back({vocab_[a], vocab_[p], count(a, p)});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Confused& a, const Confused& b) { return a.times > b.times; });
  return all;
}

void ClassificationInterpretation::plot_confusion_matrix(const std::filesystem::path& path,
                                                         bool normalize) const {
  if (!is_main()) return;
  const MatrixPicture picture(vocab_);
  std::string boxes;
  const auto most = static_cast<double>(*std::max_element(counts_.begin(), counts_.end()));
  for (std::size_t a = 0; a < vocab_.size(); ++a) {
    std::int64_t row = 0;
    for (std::size_t p = 0; p < vocab_.size(); ++p) row += count(a, p);
    for (std::size_t p = 0; p < vocab_.size(); ++p) {
      const auto n = static_cast<double>(count(a, p));
      const double share = ratio(n, normalize ? static_cast<double>(row) : most);
      boxes += picture.box(a, p, share,
                           normalize ? fmt::format("{:.2f}", share) : std::to_string(count(a, p)));
    }
  }
  std::ofstream out(path);
  out << picture.whole(boxes);
  out.close();
  PEAL_CHECK(out, interpretation_name, path.string(), " cannot be written");
}

std::string ClassificationInterpretation::classification_report() const {
  std::size_t width = std::string_view("weighted avg").size();
  for (const std::string& each : vocab_) width = std::max(width, each.size());
  std::string text = fmt::format("{:>{}}  {:>9} {:>9} {:>9} {:>9}\n\n", "", width, "precision",
                                 "recall", "f1-score", "support");
  const auto row = [&](const std::string& name, const ClassFigures& each) {
    text += fmt::format("{:>{}}  {:>9.2f} {:>9.2f} {:>9.2f} {:>9}\n", name, width, each.precision,
                        each.recall, each.f1, each.support);
  };
  ClassFigures macro, weighted;
  std::int64_t right = 0;
  const auto classes = static_cast<double>(vocab_.size());
  const auto all = static_cast<double>(std::accumulate(counts_.begin(), counts_.end(), 0LL));
  for (std::size_t c = 0; c < vocab_.size(); ++c) {
    std::int64_t found = 0, there = 0;
    for (std::size_t k = 0; k < vocab_.size(); ++k) found += count(k, c), there += count(c, k);
    const auto hit = static_cast<double>(count(c, c));
    ClassFigures own{ratio(hit, static_cast<double>(found)), ratio(hit, static_cast<double>(there)),
                     ratio(2 * hit, static_cast<double>(found + there)), there};
    row(vocab_[c], own);
    right += count(c, c);
    for (auto& [mean, share] : {std::pair{&macro, 1 / classes},
                                std::pair{&weighted, ratio(static_cast<double>(there), all)}}) {
      mean->precision += share * own.precision;
      mean->recall += share * own.recall;
      mean->f1 += share * own.f1;
      mean->support += there;
    }
  }
  text += fmt::format("\n{:>{}}  {:>9} {:>9} {:>9.2f} {:>9}\n", "accuracy", width, "", "",
                      ratio(static_cast<double>(right), all), static_cast<std::int64_t>(all));
  row("macro avg", macro);
  row("weighted avg", weighted);
  return text;
}

}  // namespace peal::launch
