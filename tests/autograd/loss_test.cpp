// SPDX-License-Identifier: Apache-2.0
// Losses at their edges, and what they refuse; their values and gradients elsewhere are held
// against PyTorch by the table of ops. Numbers are PyTorch's.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "arrays.h"
#include "gradcheck.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

using Doubles = std::vector<double>;
Tensor vector(const Doubles& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
Tensor index(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
Tensor z(const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); }

}  // namespace

namespace {

// Logits that a tape made of x, with the gradient that came back to them and where it was.
struct Watched {
  explicit Watched(const Tensor& x) : logits(x * 2.0), where(logits.raw()) {
    logits.register_hook([this](const Tensor& g) {
      in_place = g.raw() == where;
      gradient = doubles(g);
    });
  }
  Tensor logits;
  const void* where;
  bool in_place = false;
  Doubles gradient{};
};

}  // namespace

TEST_CASE("cross_entropy's gradient takes the place of logits that nobody else holds") {
  const Tensor x = normal<double>({3, 4, 7}, 1).set_requires_grad();
  const Tensor target = index({0, 6, -100, 2, 3, 1, 5, 4, 4, 2, 0, 6});
  Watched held(x), let_go(x), twice(x);
  const auto loss_of = [&](const Tensor& logits) {
    return cross_entropy(reshape(logits, {12, 7}), target, Reduction::mean, -100, 0.1);
  };
  const Doubles before = doubles(held.logits);
  loss_of(held.logits).backward();
  CHECK_FALSE(held.in_place);
  CHECK(doubles(held.logits) == before);
  {
    const Tensor loss = loss_of(let_go.logits);
    let_go.logits = Tensor();
    loss.backward();
    CHECK(let_go.in_place);
    CHECK(let_go.gradient == held.gradient);
    testing::check_has(error_of([&] { loss.backward(); }),
                       "was already freed by an earlier backward");
  }
  const Tensor loss = loss_of(twice.logits);
  twice.logits = Tensor();
  loss.backward({}, /*retain_graph=*/true);
  CHECK_FALSE(twice.in_place);
  CHECK(twice.gradient == held.gradient);
  loss.backward();
  CHECK(twice.in_place);
  CHECK(twice.gradient == held.gradient);
}

TEST_CASE("cross_entropy leaves alone what the op that made its logits needs") {
  const Tensor target = index({0, 2, 1});
  const auto gradient = [&](bool hold) {
    const Tensor x = normal<double>({3, 4}, 1).set_requires_grad();
    Tensor logits = tanh(x);  // keeps its result
    const Tensor loss = cross_entropy(logits, target);
    if (!hold) logits = Tensor();
    loss.backward();
    return doubles(x.grad());
  };
  CHECK(gradient(false) == gradient(true));
  // Somebody else's memory, too.
  std::vector<float> own{1, 2, 3, 4};
  Tensor leaf = Tensor::from_blob(own.data(), {1, 4}, DType::f32).set_requires_grad();
  const Tensor loss = cross_entropy(leaf, index({1}));
  leaf = Tensor();
  loss.backward();
  CHECK(own == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("cross_entropy beside large logits, infinite ones and NaN") {
  const auto run = [](const Doubles& row, std::int64_t wanted, DType dtype) {
    const Tensor x =
        cast(Tensor::from(row, {1, static_cast<std::int64_t>(row.size())}), dtype).detach();
    x.set_requires_grad();
    const Tensor loss = cross_entropy(x, index({wanted}));
    loss.backward();
    return std::pair(loss.item<double>(), doubles(cast(x.grad(), DType::f64)));
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double shift : {1e6, -1e6}) {  // whole numbers, which f32 has exactly
      const auto [loss, gradient] = run({shift, shift + 1, shift - 30}, 0, dtype);
      const auto [expected, slope] = run({0, 1, -30}, 0, dtype);
      CHECK(loss == expected);
      CHECK(gradient == slope);
    }
    const auto [gone, without] = run({-INFINITY, 1, 1}, 1, dtype);
    CHECK(gone == doctest::Approx(std::log(2)));
    CHECK(without[0] == 0);
    CHECK(std::isinf(run({-INFINITY, 1, 1}, 0, dtype).first));
    CHECK(std::isnan(run({INFINITY, 1, 1}, 1, dtype).first));
    CHECK(std::isnan(run({NAN, 1, 1}, 1, dtype).first));
    CHECK(std::isnan(run({-INFINITY, -INFINITY}, 1, dtype).first));
  }
}

TEST_CASE("a loss whose options are {} is the mean, as without them") {
  const Tensor x = normal<double>({2, 3}, 1), y = normal<double>({2, 3}, 2);
  const Tensor target = index({2, 0});
  CHECK(equal(nll_loss(x, target, {}), nll_loss(x, target)));
  CHECK(equal(cross_entropy(x, target, {}), cross_entropy(x, target)));
  CHECK(equal(mse_loss(x, y, {}), mse_loss(x, y)));
}

TEST_CASE("cross_entropy of whole images is that of their pixels") {
  const Tensor x = normal<double>({2, 5, 3, 4}, 1);
  std::vector<std::int64_t> classes;
  for (int i = 0; i < 24; ++i) classes.push_back(i % 7 == 3 ? -100 : i % 5);
  const Tensor target = Tensor::from(classes, {2, 3, 4});
  const Tensor rows = reshape(permute(x, {0, 2, 3, 1}), {24, 5});
  CHECK(doubles(cross_entropy(x, target)) == doubles(cross_entropy(rows, flatten(target))));
  const Tensor each = cross_entropy(x, target, Reduction::none, -100, 0.125);
  CHECK(each.shape() == Shape{2, 3, 4});
  CHECK(doubles(each) ==
        doubles(cross_entropy(rows, flatten(target), Reduction::none, -100, 0.125)));
  const Tensor logs = log_softmax(x, 1);
  CHECK(nll_loss(logs, target, Reduction::none).shape() == Shape{2, 3, 4});
}

TEST_CASE("probabilities that are 0 and 1 are classes; a weight of ones is none") {
  const Tensor x = normal<double>({4, 3}, 1), target = index({2, 0, 1, 1});
  const Tensor hot = cast(eq(arange(3), unsqueeze(target, 1)), DType::f64);
  const double expected = cross_entropy(x, target).item<double>();
  CHECK(cross_entropy(x, hot).item<double>() == doctest::Approx(expected).epsilon(1e-14));
  CHECK(cross_entropy(x, target, {.weight = ones({3}, DType::f64)}).item<double>() ==
        doctest::Approx(expected).epsilon(1e-14));
}

TEST_CASE("the mean over no row that counts is NaN, and the sum is 0") {
  const Tensor none = index({-100, -100}), weight = ones({5});
  CHECK(std::isnan(cross_entropy(z({2, 5}), none).item<double>()));
  CHECK(std::isnan(cross_entropy(z({2, 5}), none, {.weight = weight}).item<double>()));
  CHECK(cross_entropy(z({2, 5}), none, {.weight = weight, .reduction = Reduction::sum})
            .item<double>() == 0);
  const Tensor x = full({2, 5}, -INFINITY, DType::f32).set_requires_grad();
  const Tensor some = cross_entropy(
      x, none, {.weight = weight, .reduction = Reduction::sum, .label_smoothing = 0.5});
  CHECK(some.item<double>() == 0);
}

TEST_CASE("what is in a row that is ignored reaches nothing, with a weight of classes or without") {
  const Tensor weight = vector({1, 2, 4}), target = index({2, -100, 0});
  for (const double smoothing : {0.0, 0.25}) {
    for (const Tensor& each : {Tensor(), weight}) {
      const CrossEntropyOptions options{.weight = each, .label_smoothing = smoothing};
      Tensor x = Tensor::from(Doubles{0, 1, 2, NAN, INFINITY, 0, 1, 0, 1}, {3, 3});
      Tensor rest = Tensor::from(Doubles{0, 1, 2, 1, 0, 1}, {2, 3});
      x.set_requires_grad();
      rest.set_requires_grad();
      const Tensor loss = cross_entropy(x, target, options);
      const Tensor expected = cross_entropy(rest, index({2, 0}), options);
      CHECK(loss.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-14));
      loss.backward();
      expected.backward();
      const Doubles found = doubles(x.grad()), wanted = doubles(rest.grad());
      CHECK(distance(Doubles(found.begin(), found.begin() + 3),
                     Doubles(wanted.begin(), wanted.begin() + 3)) < 1e-14);
      CHECK(Doubles(found.begin() + 3, found.begin() + 6) == Doubles{0, 0, 0});
      CHECK(distance(Doubles(found.begin() + 6, found.end()),
                     Doubles(wanted.begin() + 3, wanted.end())) < 1e-14);
    }
  }
}

TEST_CASE("binary cross entropies are finite to the ends") {
  const Tensor x = vector({0, 1, 0.5}).set_requires_grad();
  const Tensor each = binary_cross_entropy(x, vector({1, 0, 1}), {.reduction = Reduction::none});
  CHECK(doubles(each) == Doubles{100, 100, -std::log(0.5)});
  each.backward(ones({3}, DType::f64));
  CHECK(doubles(x.grad()) == Doubles{-1e12, 1e12, -2});

  const Tensor logits = vector({1000, -1000, 1000, -1000}).set_requires_grad();
  const Tensor losses = binary_cross_entropy_with_logits(
      logits, vector({1, 0, 0, 1}),
      {.pos_weight = Tensor::scalar(3.0), .reduction = Reduction::none});
  CHECK(doubles(losses) == Doubles{0, 0, 1000, 3000});
  losses.backward(ones({4}, DType::f64));
  CHECK(doubles(logits.grad()) == Doubles{0, 0, 1, -3});
}

TEST_CASE("kl_div counts nothing where the target is 0; l1_loss is flat where both are equal") {
  const Tensor finite = vector({-3, -1}).set_requires_grad();
  CHECK(kl_div(finite, vector({0, 1}), {.reduction = Reduction::sum}).item<double>() == 1);
  const Tensor same = vector({1, 2}).set_requires_grad();
  l1_loss(same, vector({1, 3}), Reduction::sum).backward();
  CHECK(doubles(same.grad()) == Doubles{0, -1});
}

TEST_CASE("rows without length: distances and cosines have finite gradients") {
  for (const auto& op :
       {std::function([](const Tensor& x) { return normalize(x, 2, -1); }),
        std::function(
            [](const Tensor& x) { return cosine_similarity(x, ones({2}, DType::f64), -1); }),
        std::function([](const Tensor& x) { return pairwise_distance(x, x.detach()); })}) {
    const Tensor x = Tensor::zeros({2}, DType::f64).set_requires_grad();
    sum(op(x)).backward();
    for (const double value : doubles(x.grad())) CHECK(std::isfinite(value));
  }
}

TEST_CASE("what class losses refuse") {
  const auto refused = [](auto f) { return error_of([&] { f(); }); };
  CHECK(refused([] {
          cross_entropy(z({2, 5, 3}), z({2, 4}, DType::i64));
        }) == "cross_entropy: expected an i64 target [2, 3] for scores [2, 5, 3], got i64 [2, 4]");
  CHECK(refused([] {
          cross_entropy(z({2, 5, 3}), z({2, 3}));
        }) == "cross_entropy: expected an i64 target [2, 3] for scores [2, 5, 3], got f32 [2, 3]");
  CHECK(refused([] {
          cross_entropy(z({2, 5}), index({0, 1}), {.weight = ones({4})});
        }) == "cross_entropy: expected a weight for each class of [2, 5], got shape [4]");
  CHECK(refused([] {
          cross_entropy(z({2, 5}), index({0, 5}), {.weight = ones({5})});
        }) == "cross_entropy: target of row 1 is 5, expected a class in [0, 5)");
  CHECK(refused([] {
          cross_entropy(z({2, 5}), z({2, 5}), {.ignore_index = 0});
        }) ==
        "cross_entropy: ignore_index is for targets that are classes, got 0 beside probabilities");
  CHECK(refused([] {
          nll_loss(z({2, 5}), index({0, 1}), Reduction::batchmean);
        }) == "nll_loss: batchmean is kl_div's alone");
  CHECK(refused([] { nll_loss(z({}), z({}, DType::i64)); }) ==
        "nll_loss: expected [N, classes], got shape []");
  CHECK(refused([] {
          multi_margin_loss(z({2, 5}), index({0, 5}));
        }) == "gather: index 5 is outside of dimension 1 of shape [2, 5]");
}

TEST_CASE("what losses of pairs refuse") {
  const auto refused = [](auto f) { return error_of([&] { f(); }); };
  CHECK(refused([] { l1_loss(z({2}), z({3})); }) ==
        "l1_loss: expected a target of shape [2], got [3]");
  CHECK(refused([] { mse_loss(z({2}), z({2}), z({1})); }) ==
        "mse_loss: expected a weight of shape [2], got [1]");
  CHECK(refused([] { mse_loss(z({2}), z({2}), Reduction::batchmean); }) ==
        "mse_loss: batchmean is kl_div's alone");
  CHECK(refused([] { huber_loss(z({2}), z({2}), Reduction::mean, 0); }) ==
        "huber_loss: expected a delta above 0, got 0");
  CHECK(refused([] {
          binary_cross_entropy(vector({0.5, 1.5}), vector({0, 1}));
        }) == "binary_cross_entropy: element 1 is 1.5, expected a probability in [0, 1]");
  CHECK(refused([] {
          binary_cross_entropy(vector({0.5, 1}), vector({2, 1}));
        }) == "binary_cross_entropy: target 0 is 2, expected a probability in [0, 1]");
  CHECK(
      refused([] {
        binary_cross_entropy_with_logits(z({2, 3}), z({2, 3}), {.pos_weight = ones({2})});
      }) ==
      "binary_cross_entropy_with_logits: shapes [2, 3] and [2] do not broadcast: dimension -1 is 3 "
      "and 2");
  CHECK(
      refused([] {
        gaussian_nll_loss(z({2, 3}), z({2, 3}), z({2, 2}));
      }) ==
      "gaussian_nll_loss: expected a variance of shape [2, 3], or with 1 in one place, got [2, 2]");
  CHECK(refused([] { gaussian_nll_loss(z({1}), z({1}), full({1}, -1, DType::f32)); }) ==
        "gaussian_nll_loss: variance 0 is -1, expected at least 0");
  CHECK(refused([] {
          triplet_margin_loss(z({2, 3}), z({2, 3}), z({2, 3}), {.margin = 0});
        }) == "triplet_margin_loss: expected a margin above 0, got 0");
  CHECK(refused([] {
          cosine_embedding_loss(z({2, 3}), z({2, 3}), z({3}));
        }) ==
        "cosine_embedding_loss: expected rows [N, D] and a target [N], or [D] and a scalar, got "
        "[2, 3] and [3]");
}

namespace {

// Minus the logarithm of what all ways over T steps and C classes have together that say this: each
// way is a number of T digits.
double alignments(const Tensor& scores, const std::vector<std::int64_t>& said) {
  const std::int64_t steps = scores.size(0), classes = scores.size(1);
  const double* at = scores.data<double>();
  double total = 0;
  const auto ways = static_cast<std::int64_t>(std::pow(classes, steps) + 0.5);
  for (std::int64_t way = 0; way < ways; ++way) {
    std::vector<std::int64_t> labels;
    double logarithm = 0;
    std::int64_t last = 0;
    for (std::int64_t t = 0, digits = way; t < steps; ++t, digits /= classes) {
      const std::int64_t label = digits % classes;
      logarithm += at[t * classes + label];
      if (label != 0 && (t == 0 || label != last)) labels.push_back(label);
      last = label;
    }
    if (labels == said) total += std::exp(logarithm);
  }
  return -std::log(total);
}

}  // namespace

TEST_CASE("ctc_loss sums over all ways to say the target") {
  const Tensor lengths = index({4});
  for (const std::vector<std::int64_t>& said : std::vector<std::vector<std::int64_t>>{
           {}, {1}, {2, 1}, {1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 2, 1, 2}}) {
    const Tensor scores = normal<double>({4, 3}, 5);
    const auto loss = [&](const Tensors& x) {
      return ctc_loss(x[0], index(said), lengths, index({static_cast<std::int64_t>(said.size())}),
                      {.reduction = Reduction::sum});
    };
    CHECK(loss({scores}).item<double>() ==
          doctest::Approx(alignments(scores, said)).epsilon(1e-12));
    CHECK(gradient_error(loss, {scores.clone().set_requires_grad()}) < 1e-7);
  }
}

TEST_CASE("ctc_loss where there is no way, and where nothing is heard") {
  const Tensor scores = log_softmax(normal<double>({3, 2, 4}, 5), 2).detach().set_requires_grad();
  const Tensor said = reshape(index({1, 1, 1, 2}), {2, 2}), heard = index({2, 3});
  const Tensor none = ctc_loss(scores, said, heard, index({2, 2}), {.reduction = Reduction::none});
  CHECK(std::isinf(doubles(none)[0]));
  CHECK(std::isfinite(doubles(none)[1]));
  sum(none).backward();
  CHECK(std::isnan(doubles(scores.grad())[0]));
  CHECK(std::isfinite(doubles(scores.grad())[4]));
  scores.zero_grad();
  const CTCOptions zeros{.reduction = Reduction::none, .zero_infinity = true};
  const Tensor rest = ctc_loss(scores, said, heard, index({2, 2}), zeros);
  CHECK(doubles(rest) == Doubles{0, doubles(none)[1]});
  sum(rest).backward();
  CHECK(doubles(scores.grad())[0] == 0);
  const Tensor silent = ctc_loss(scores.detach(), index({1}), index({0, 0}), index({0, 1}),
                                 {.reduction = Reduction::none});
  CHECK(doubles(silent)[0] == 0);
  CHECK(std::isinf(doubles(silent)[1]));
}

TEST_CASE("ctc_loss is NaN where a score is, also where infinite losses are 0") {
  const Tensor heard = index({4}), said = reshape(index({1}), {1, 1});
  for (const bool zero_infinity : {false, true}) {
    for (const std::int64_t place : {0, 1, 4, 7}) {
      Doubles scores(8, std::log(0.5));
      scores[static_cast<std::size_t>(place)] = NAN;
      const Tensor x = Tensor::from(scores, {4, 1, 2}).set_requires_grad();
      const Tensor loss = ctc_loss(x, said, heard, index({1}), {.zero_infinity = zero_infinity});
      CHECK(std::isnan(loss.item<double>()));
      loss.backward();
      CHECK(std::isnan(doubles(x.grad())[0]));
    }
  }
}

TEST_CASE("what ctc_loss refuses") {
  const Tensor scores = z({3, 2, 4});
  const auto error = [&](const Tensor& said, const std::vector<std::int64_t>& heard,
                         const std::vector<std::int64_t>& lengths, const CTCOptions& o = {}) {
    return error_of([&] { ctc_loss(scores, said, index(heard), index(lengths), o); });
  };
  CHECK(error(index({1, 4}), {3, 3}, {1, 1}) ==
        "ctc_loss: target 4 of sequence 1 is outside of 4 classes");
  CHECK(error(index({1, 2}), {3, 4}, {1, 1}) ==
        "ctc_loss: input 1 has a length of 4, expected at most 3");
  CHECK(error(index({1, 2}), {3, 3}, {1, 2}) ==
        "ctc_loss: expected targets [2, S], or [3] as their lengths say, got shape [2]");
  CHECK(error(index({1, 2}), {3}, {1, 1}) ==
        "ctc_loss: expected input_lengths i64 [2], got i64 [1]");
  CHECK(error(index({1, 2}), {3, 3}, {1, 1}, {.blank = 4}) ==
        "ctc_loss: blank 4 is outside of 4 classes");
}
