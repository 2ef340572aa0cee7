// SPDX-License-Identifier: Apache-2.0
// Metrics: by hand, and the same number on any ranks that share the samples out unevenly.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/metrics/regression.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

using namespace peal;
using namespace peal::testing;

namespace {

using Make = std::function<std::unique_ptr<nn::Metric>()>;
template <class M, class... Args>
Make make(Args... args) {
  return [=] { return std::make_unique<M>(args...); };
}

// Scores that are quarters, so that sums are exact; classes of three.
Tensor scores_of(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n * 3; ++i) {
    values.push_back(static_cast<float>(i * 7 % 11 - 5) / 4);
  }
  return Tensor::from(values, {n, 3});
}
Tensor classes_of(std::int64_t n) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(i % 5 == 4 ? -100 : i * 2 % 3);
  return Tensor::from(values, {n});
}

void check_same(double a, double b) {
  if (std::isnan(b)) {
    CHECK(std::isnan(a));
  } else {
    CHECK(a == doctest::Approx(b).epsilon(1e-14));
  }
}

}  // namespace

TEST_CASE("metrics of classes by hand") {
  const Tensor scores = Tensor::from<float>({3, 1, 2, 1, 3, 2, 1, 2, 3, 3, 2, 1}, {4, 3});
  const Tensor classes = Tensor::from<std::int64_t>({0, 2, 2, 1}, {4});  // guesses 0, 1, 2, 0
  nn::Accuracy accuracy;
  CHECK(std::isnan(accuracy.value()));
  accuracy.update(scores, classes);
  CHECK(accuracy.value() == 0.5);
  accuracy.update(scores, Tensor::from<std::int64_t>({0, 1, 2, -100}, {4}));
  CHECK(accuracy.value() == 5.0 / 7);
  accuracy.reset();
  CHECK(std::isnan(accuracy.value()));
  nn::ErrorRate error;
  error.update(scores, classes);
  CHECK(error.value() == 0.5);
  nn::TopKAccuracy top2(2);
  top2.update(scores, classes);
  CHECK(top2.value() == 1);
  // Of scores that are equal, or NaN, the first are the largest.
  for (const auto& row : std::vector<std::vector<float>>{{1, 1, 1}, {NAN, 1, 2}, {0, NAN, 0}}) {
    nn::Accuracy best;
    nn::TopKAccuracy top1(1), all(3), beyond(10);
    for (const std::int64_t c : {0, 1, 2}) {
      const Tensor of_class = Tensor::from<std::int64_t>({c}, {1});
      for (nn::Metric* each : {static_cast<nn::Metric*>(&best), static_cast<nn::Metric*>(&top1),
                               static_cast<nn::Metric*>(&all), static_cast<nn::Metric*>(&beyond)}) {
        each->update(Tensor::from(row, {1, 3}), of_class);
      }
    }
    const double numbers = std::isnan(row[0] + row[1]) ? 2 : 3;
    CHECK(best.value() == 1.0 / 3);
    CHECK(top1.value() == (numbers == 3 ? 1.0 / 3 : 0.0));
    CHECK(all.value() == numbers / 3);
    CHECK(beyond.value() == numbers / 3);
  }
  nn::ConfusionMatrix confusion(3);
  confusion.update(scores, classes);
  CHECK(confusion.matrix().to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 0, 0, 1, 0, 0, 0, 1, 1});
  CHECK(confusion.value() == 0.5);
  // Precisions 1/2, 0, 1; recalls 1, 0, 1/2; F1 2/3, 0, 2/3.
  nn::Precision precision(3);
  nn::Recall recall(3);
  nn::F1Score f1(3), micro(3, nn::Average::micro), binary(2, nn::Average::binary);
  for (nn::Metric* metric :
       {static_cast<nn::Metric*>(&precision), static_cast<nn::Metric*>(&recall),
        static_cast<nn::Metric*>(&f1), static_cast<nn::Metric*>(&micro)}) {
    metric->update(scores, classes);
  }
  CHECK(precision.value() == 0.5);
  CHECK(recall.value() == 0.5);
  CHECK(f1.value() == doctest::Approx(4.0 / 9));
  CHECK(micro.value() == 0.5);
  // Guesses 1, 1, 0; truth 1, 0, 1: precision and recall 1/2.
  binary.update(Tensor::from<float>({0, 1, 0, 1, 1, 0}, {3, 2}),
                Tensor::from<std::int64_t>({1, 0, 1}, {3}));
  CHECK(binary.value() == 0.5);
  nn::Perplexity perplexity;
  perplexity.update(Tensor::zeros({2, 8}), Tensor::from<std::int64_t>({3, 5}, {2}));
  CHECK(perplexity.value() == doctest::Approx(8.0));
  nn::Accuracy pixels;
  pixels.update(permute(reshape(scores, {2, 2, 3}), {0, 2, 1}), reshape(classes, {2, 2}));
  CHECK(pixels.value() == 0.5);
}

TEST_CASE("the area under the curve by hand") {
  nn::AUROC area;
  CHECK(std::isnan(area.value()));
  // scikit-learn's example: pairs above 3 of 4.
  area.update(Tensor::from<float>({0.1F, 0.4F, 0.35F, 0.8F}, {4}),
              Tensor::from<std::int64_t>({0, 0, 1, 1}, {4}));
  CHECK(area.value() == 0.75);
  area.reset();
  CHECK(std::isnan(area.value()));
  // Equals count half; a place that is ignored does not; scores of two classes by their difference.
  area.update(Tensor::from<float>({0, 1, 5, 6, 3, 3, 9, 0}, {4, 2}),
              Tensor::from<std::int64_t>({0, 1, 1, -100}, {4}));
  CHECK(area.value() == 0.25);
  // Each class against the rest: 2 of 2, 1 of 2, 1 of 2 pairs; by probabilities, and by logits.
  const Tensor likely = Tensor::from<double>({.8, .1, .1, .1, .3, .6, .3, .4, .3}, {3, 3});
  const Tensor moved = log(likely) + Tensor::from<double>({5, -3, 1}, {3, 1});
  for (const Tensor& scores : {likely, log(likely), moved}) {
    nn::AUROC three(3);
    three.update(scores, Tensor::from<std::int64_t>({0, 1, 2}, {3}));
    CHECK(three.value() == doctest::Approx((1 + 0.5 + 0.5) / 3));
  }
  // Probabilities that are far apart by their ratio alone are no equals.
  nn::AUROC tiny;
  tiny.update(Tensor::from<double>({1, 1e-30, 1, 1e-20}, {2, 2}),
              Tensor::from<std::int64_t>({0, 1}, {2}));
  CHECK(tiny.value() == 1);
  check_has(
      error_of([&] {
        area.update(Tensor::from<float>({NAN, 0}, {2}), Tensor::from<std::int64_t>({0, 1}, {2}));
      }),
      "AUROC: a score of a place of class 0 is NaN");
  CHECK(area.value() == 0.25);  // nothing of what was refused
  const float inf = std::numeric_limits<float>::infinity();
  check_has(
      error_of([&] {
        area.update(Tensor::from<float>({inf, inf}, {1, 2}), Tensor::from<std::int64_t>({1}, {1}));
      }),
      "AUROC: the logits of a place of class 1 are infinite");
  nn::AUROC several(3);
  check_has(error_of([&] {
              several.update(Tensor::from<float>({inf, 0, 1}, {1, 3}),
                             Tensor::from<std::int64_t>({2}, {1}));
            }),
            "AUROC: the logits of a place of class 2 are infinite");
  several.update(Tensor::from<float>({-inf, 0, 2, 1, 0, 0, 0, 3, 0}, {3, 3}),
                 Tensor::from<std::int64_t>({2, 0, 1}, {3}));
  CHECK(several.value() == 1);
}

TEST_CASE("the share of explained variance keeps its digits far from 0") {
  nn::R2Score near, far;
  const Tensor y = Tensor::from<double>({1, 2, 3, 5}, {4}),
               t = Tensor::from<double>({1, 4, 3, 4}, {4});
  near.update(y, t);
  far.update(y + 1e9, t + 1e9);
  nn::R2Score constant;
  constant.update(t * 0.0, t * 0.0);
  CHECK(constant.value() == 1);
  constant.update(t * 0.0 + 1.0, t * 0.0);
  CHECK(constant.value() == 0);
  CHECK(far.value() == doctest::Approx(near.value()).epsilon(1e-6));
}

TEST_CASE("metrics of numbers by hand") {
  const Tensor y = Tensor::from<float>({1, 2, 3, 5}, {2, 2}),
               t = Tensor::from<float>({1, 4, 3, 4}, {2, 2});
  nn::RMSE rmse;
  nn::MeanSquaredError mse;
  nn::MeanAbsoluteError mae;
  nn::R2Score r2;
  CHECK(std::isnan(rmse.value()));
  for (nn::Metric* metric : {static_cast<nn::Metric*>(&rmse), static_cast<nn::Metric*>(&mse),
                             static_cast<nn::Metric*>(&mae), static_cast<nn::Metric*>(&r2)}) {
    metric->update(y, t);
  }
  CHECK(mse.value() == 1.25);
  CHECK(rmse.value() == std::sqrt(1.25));
  CHECK(mae.value() == 0.75);
  CHECK(r2.value() == doctest::Approx(1 - 5.0 / 6));
}

TEST_CASE("ranks that share samples out, evenly or not, have the number of one") {
  const std::vector<Make> of_classes = {
      make<nn::Accuracy>(),   make<nn::ErrorRate>(),        make<nn::TopKAccuracy>(2),
      make<nn::Perplexity>(), make<nn::ConfusionMatrix>(3), make<nn::Precision>(3),
      make<nn::Recall>(3),    make<nn::F1Score>(3),         make<nn::AUROC>(3)};
  const std::vector<Make> of_numbers = {make<nn::RMSE>(), make<nn::MeanAbsoluteError>(),
                                        make<nn::R2Score>()};
  const auto judge = [](const Make& each, const Tensor& y, const Tensor& t,
                        const comm::ProcessGroup& group) {
    const std::int64_t n = y.size(0), rank = group.rank(), world = group.world();
    const auto whole = each(), part = each();
    if (n > 0) whole->update(y, t);
    // The first rank gets one in two of those that are left, in batches of five.
    std::int64_t begin = 0, end = n;
    for (std::int64_t r = 0; r <= rank; ++r) {
      begin = r == 0 ? 0 : end;
      end = r == world - 1 ? n : begin + (n - begin + 1) / 2;
    }
    for (std::int64_t i = begin; i < end; i += 5) {
      const std::int64_t last = std::min(i + 5, end);
      part->update(y.rows(i, last), t.rows(i, last));
    }
    check_same(part->value(group), whole->value());
  };
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, {.deadline = std::chrono::minutes(1)},
                    [&](const comm::ProcessGroup& group) {
                      for (const std::int64_t n : {0, 1, world - 1, world, world + 1, 97}) {
                        for (const Make& each : of_classes) {
                          judge(each, scores_of(n), classes_of(n), group);
                        }
                        const Tensor y = flatten(scores_of(n));
                        for (const Make& each : of_numbers) judge(each, y, y * y, group);
                      }
                    });
  }
}

TEST_CASE("a mean of ranks' numbers, as fastai's, is an over() of one's own, and not exact") {
  struct OfRanks : nn::Accuracy {
    std::vector<double> over(const comm::ProcessGroup& group) const override {
      double all = 0;
      for (const std::vector<double>& each : gather(group)) all += of(each) / group.world();
      return {all, 1};
    }
  };
  comm::run_ranks(2, {.deadline = std::chrono::minutes(1)}, [](const comm::ProcessGroup& group) {
    nn::Accuracy exact;
    OfRanks of_ranks;
    // Rank 0 has one, which is right, and rank 1 four, of which one is.
    const Tensor scores = Tensor::from(std::vector<float>{0, 1}, {1, 2}, Device{});
    for (int i = 0; i < (group.rank() == 0 ? 1 : 4); ++i) {
      const Tensor target = Tensor::from(std::vector<std::int64_t>{i == 0 ? 1 : 0}, {1}, Device{});
      exact.update(scores, target);
      of_ranks.update(scores, target);
    }
    CHECK(exact.value(group) == doctest::Approx(0.4));
    CHECK(of_ranks.value(group) == doctest::Approx(0.625));
  });
}

TEST_CASE("what metrics refuse") {
  nn::Accuracy accuracy;
  check_has(
      error_of([&] {
        accuracy.update(Tensor::zeros({2, 3}), Tensor::zeros({2}));
      }),
      "Accuracy: expected scores [N, C, ...] and i64 classes [N, ...], got f32 [2, 3] and f32");
  check_has(error_of([&] {
              accuracy.update(Tensor::zeros({2, 3}), Tensor::from<std::int64_t>({0, 3}, {2}));
            }),
            "Accuracy: class of place 1 is 3, expected one in [0, 3)");
  check_has(error_of([] { nn::F1Score(3, nn::Average::binary); }),
            "binary is of two classes, got 3");
  check_has(error_of([] { nn::RMSE().update(Tensor::zeros({2}), Tensor::zeros({3})); }),
            "metric: expected a target of shape [2], got [3]");
}
