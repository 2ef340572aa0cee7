// SPDX-License-Identifier: Apache-2.0
// What a Learner says about samples, and how it is kept in files.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/samples.h>
#include <peal/data/text/text_set.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/interpretation.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

nn::Linear made_net(std::uint64_t seed = 3) {
  manual_seed(seed);
  return nn::Linear(2, 3);
}

void check_equal(const Tensor& a, const Tensor& b) {
  REQUIRE((a.defined() && b.defined()));
  REQUIRE(a.shape() == b.shape());
  CHECK(a.dtype() == b.dtype());
  CHECK(any(ne(a, b)).item<bool>() == false);
}

data::LoaderOptions exact_share(const launch::Job& job, std::int64_t batch_size = 2) {
  return {.batch_size = batch_size, .shard = job.place(), .exact = true};
}

launch::LearnerOptions with_cross_entropy() {
  launch::LearnerOptions options{.loss = nn::CrossEntropyLoss{}};
  options.classes = {"red", "green", "blue"};
  return options;
}

}  // namespace

TEST_CASE("predictions of all ranks are those of one, each sample once and in order") {
  const auto points = std::make_shared<Points>(7);
  std::vector<std::int64_t> seven{0, 1, 2, 3, 4, 5, 6};
  const data::Batch whole = points->get(seven);
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      nn::Linear net = made_net();
      data::DataLoader loader(points, exact_share(job));
      launch::Learner learner(job, {nullptr, &loader}, net, with_cross_entropy());
      const auto found =
          learner.get_preds(nullptr, {.with_decoded = true, .with_input = true, .with_loss = true});
      const NoGrad guard;
      const Tensor logits = net(whole.x);
      CHECK(max(abs(found.predictions - softmax(logits, 1))).item<float>() < 1e-6f);
      check_equal(found.targets, whole.y);
      check_equal(found.inputs, whole.x);
      check_equal(found.decoded, argmax(logits, 1));
      REQUIRE(found.losses.shape() == Shape{7});
      CHECK(mean(found.losses).item<float>() ==
            doctest::Approx(cross_entropy(logits, whole.y).item<float>()).epsilon(1e-6));
      CHECK(learner.validate()[0].value ==
            doctest::Approx(cross_entropy(logits, whole.y).item<float>()).epsilon(1e-6));
      for (const std::int64_t k : seven) {
        const auto one = learner.predict(select(whole.x, 0, k));
        CHECK(max(abs(one.predictions - select(found.predictions, 0, k))).item<float>() < 1e-6f);
        check_equal(one.decoded, select(found.decoded, 0, k));
        CHECK(one.label ==
              std::vector<std::string>{"red", "green", "blue"}[one.decoded.item<std::int64_t>()]);
      }
    });
  }
}

TEST_CASE("what is said of a sample and of its variants becomes one, on any number of ranks") {
  struct Shaken : data::SampleSet {
    std::int64_t size() const override { return 7; }
    data::Sample sample(std::int64_t k, data::Draw& draw) const override {
      const float x = static_cast<float>(k) - 3 + draw.uniform();
      return {Tensor::from(std::vector<float>{x, 1}, {2}, Device{}), tensor(k % 3)};
    }
  };
  const auto variants = std::make_shared<Shaken>();
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      nn::Linear net = made_net();
      data::DataLoader loader(std::make_shared<Points>(7), exact_share(job));
      data::DataLoader augmented(variants, exact_share(job));
      launch::Learner learner(job, {nullptr, &loader}, net, with_cross_entropy());
      const Tensor plain = learner.get_preds().predictions;
      const NoGrad guard;
      std::vector<std::int64_t> seven{0, 1, 2, 3, 4, 5, 6};
      const auto of_epoch = [&](std::int64_t epoch) {
        return softmax(net(variants->augmented(seven, data::Draws{0, epoch}).x), 1);
      };
      const Tensor first = of_epoch(0), second = of_epoch(1);
      CHECK(max(abs(first - second)).item<float>() > 1e-3f);
      for (int again = 0; again < 2; ++again) {
        const auto found = learner.tta(augmented, nullptr, {.n = 2});
        const Tensor wanted = (first + second) * 0.375 + plain * 0.25;
        CHECK(max(abs(found.predictions - wanted)).item<float>() < 1e-6f);
        check_equal(found.decoded, argmax(found.predictions, 1));
        CHECK(found.targets.shape() == Shape{7});
      }
      // Of whole loaders, which ranks share, also where they were asked for before.
      data::DataLoader whole(variants, {.batch_size = 2, .seed = 0});
      learner.get_preds(&whole);
      for (int again = 0; again < 2; ++again) {
        const Tensor one = learner.tta(whole, nullptr, {.n = 1}).predictions;
        CHECK(max(abs(one - (first * 0.75 + plain * 0.25))).item<float>() < 1e-6f);
      }
      const auto most = learner.tta(augmented, &loader, {.n = 2, .use_max = true}).predictions;
      CHECK(max(abs(most - maximum(plain, maximum(first, second)))).item<float>() < 1e-6f);
      data::DataLoader others(std::make_shared<Points>(6), exact_share(job));
      testing::check_has(testing::error_of([&] { learner.tta(others); }),
                         "of their variants; give loaders of the same ones");
      testing::check_has(testing::error_of([&] { learner.tta(augmented, nullptr, {.n = 0}); }),
                         "expected 1 or more variants");
    });
  }
}

TEST_CASE("ranks may have no sample at all, and samples no target that means anything") {
  comm::run_ranks(3, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    nn::Linear net = made_net();
    data::DataLoader loader(std::make_shared<Points>(2), exact_share(job));
    launch::Learner learner(job, {}, net, with_cross_entropy());
    const auto found = learner.get_preds(&loader, {.with_targets = false});
    CHECK(found.predictions.shape() == Shape{2, 3});
    CHECK(!found.targets.defined());
    CHECK(!found.losses.defined());
    const auto no_loss = testing::error_of(
        [&] { learner.get_preds(&loader, {.with_targets = false, .with_loss = true}); });
    testing::check_has(no_loss, "no losses without targets");
  });
}

TEST_CASE("texts that a batch puts in another order are put back") {
  std::vector<data::TokenIds> texts;
  std::vector<std::int64_t> classes;
  for (std::int64_t k = 0; k < 5; ++k) {
    texts.emplace_back(data::TokenIds(static_cast<std::size_t>(k % 2 == 0 ? 2 + k : 1), 10 + k));
    classes.push_back(k % 3);
  }
  const auto set = std::make_shared<data::TextSet>(texts, classes, data::pad_parts(2));
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      data::DataLoader loader(set, exact_share(job, 3));
      launch::LearnerOptions options{.loss = nn::CrossEntropyLoss{}};
      // The largest token of a text says which one it is.
      options.forward = [](nn::Module&, const data::Batch& batch) {
        const Tensor largest = cast(amax(batch.x, {1}), DType::f32);
        return stack({largest, largest * 0.0, largest * 0.0}, 1);
      };
      options.activation = [](const Tensor& x) { return select(x, 1, 0); };
      launch::Learner learner(job, {}, made_net(), options);
      const auto found = learner.get_preds(&loader);
      CHECK(found.predictions.to_vector<float>() == std::vector<float>{10, 11, 12, 13, 14});
      CHECK(found.targets.to_vector<std::int64_t>() == classes);
    });
  }
}

TEST_CASE("losses say how outputs are read, and those of one's own sample by sample") {
  const Tensor x = Tensor::from(std::vector<float>{-1, 2}, {2, 1}, Device{});
  const auto sigmoids = launch::reading_of(nn::BCEWithLogitsLoss{});
  CHECK(sigmoids.decodes(sigmoids.activation(x)).to_vector<bool>() ==
        std::vector<bool>{false, true});
  CHECK(launch::reading_of(nn::MSELoss{}).activation_name == "none");
  CHECK(launch::reading_of(nn::NLLLoss{}).activation_name == "exp");
  const Tensor y = Tensor::from(std::vector<float>{1, 5}, {2, 1}, Device{});
  const std::vector<float> squares{4, 9};
  CHECK(launch::loss_of_each(nn::MSELoss{}, x, y).to_vector<float>() == squares);
  const launch::Loop::LossFunction own = [](const Tensor& a, const Tensor& b) {
    return mse_loss(a, b);
  };
  CHECK(launch::loss_of_each(own, x, y).to_vector<float>() == squares);
  // [N, C, d]: the mean over the places of each.
  const Tensor scores = reshape(arange(0, 12, 1, DType::f32), {2, 3, 2}),
               classes = zeros({2, 2}, DType::i64);
  const Tensor each = launch::loss_of_each(nn::CrossEntropyLoss{}, scores, classes);
  CHECK(each.shape() == Shape{2});
  CHECK(mean(each).item<float>() ==
        doctest::Approx(cross_entropy(scores, classes).item<float>()).epsilon(1e-6));
}

TEST_CASE("a learner that was saved goes on as if it had not stopped") {
  const testing::Folder folder;
  for (const int world : {1, 2}) {
    const auto file = folder.path / concat("state", world);
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      const auto learnt = [&](int epochs, bool stops) {
        nn::Linear net = made_net();
        data::DataLoader training(std::make_shared<Points>(8),
                                  {.batch_size = 8 / world, .shard = job.place()});
        launch::Learner learner(job, {&training}, net, with_cross_entropy());
        learner.fit(epochs, 0.1);
        if (!stops) return net.weight.detach().clone();
        learner.save(file);
        nn::Linear other = made_net(9);
        data::DataLoader again(std::make_shared<Points>(8),
                               {.batch_size = 8 / world, .shard = job.place()});
        launch::Learner goes_on(job, {&again}, other, with_cross_entropy());
        goes_on.load(file);
        goes_on.fit(1, 0.1);
        launch::Learner model_alone(job, {&again}, net, with_cross_entropy());
        model_alone.save(concat(file.string(), ".model"), false);
        testing::check_has(
            testing::error_of([&] { goes_on.load(concat(file.string(), ".model")); }),
            "with_opt = false");
        goes_on.load(concat(file.string(), ".model"), false);
        CHECK(sum(abs(other.weight - net.weight)).item<float>() == 0);
        goes_on.load(file);
        goes_on.fit(1, 0.1);
        return other.weight.detach().clone();
      };
      check_equal(learnt(1, true), learnt(2, false));
      launch::Learner learner(job, {}, made_net(), with_cross_entropy());
      learner.save(folder.path / "a" / "folder" / "state");  // which is made
      const auto nowhere = folder.path / "a" / "folder" / "state" / "of a file";
      CHECK(testing::error_of([&] { learner.save(nowhere); }) != "nothing");
      CHECK(testing::error_of([&] { learner.load(nowhere); }) != "nothing");
    });
  }
}

TEST_CASE("an exported model says the same in another program, which is told what does not fit") {
  const testing::Folder folder;
  const auto file = folder.path / "points.learner";
  const auto points = std::make_shared<Points>(7);
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    nn::Linear net = made_net();
    auto options = with_cross_entropy();
    options.settings = {{"size", "2"}};
    data::DataLoader loader(points, exact_share(job));
    launch::Learner learner(job, {}, net, options);
    const auto said = learner.get_preds(&loader);
    learner.export_to(file);

    const auto there = launch::exported(file);
    CHECK(there.classes == options.classes);
    CHECK(there.settings == options.settings);
    CHECK(there.activation == "softmax");
    auto loaded = launch::load_learner(job, file, made_net(9), {.loss = nn::CrossEntropyLoss{}});
    check_equal(loaded.get_preds(&loader).predictions, said.predictions);
    CHECK(!loaded.predict(zeros({2})).label.empty());
    testing::check_has(testing::error_of([&] { loaded.fit(1); }), "no loader to train with");
    testing::check_has(testing::error_of([&] { loaded.lr_find(); }), "no loader to train with");
    nn::Linear plain(2, 3);
    nn::load_model(file, plain);  // a file of a model like any other
    check_equal(plain.weight, net.weight);

    const auto refused = [&](nn::Module model, launch::LearnerOptions with) {
      return testing::error_of([&] { launch::load_learner(job, file, model, with); });
    };
    testing::check_has(refused(nn::Linear(2, 4), {.loss = nn::CrossEntropyLoss{}}),
                       "was exported of a peal::nn::Linear");
    testing::check_has(refused(made_net(), {.loss = nn::MSELoss{}}), "give the same loss");
    auto others = with_cross_entropy();
    others.classes = {"green", "red", "blue"};
    testing::check_has(refused(made_net(), others), "names of classes");
    if (job.is_main()) nn::save_model(folder.path / "plain", net);
    group.barrier("plain").wait();
    CHECK(testing::error_of([&] { launch::exported(folder.path / "plain"); }) != "nothing");
    options.settings = {{"learner.classes", "2"}};
    launch::Learner clash(job, {}, net, options);
    testing::check_has(testing::error_of([&] { clash.export_to(file); }), "learner's own");
  });
}

TEST_CASE("the summary has a line a layer, and what learns") {
  launch::Job job;
  manual_seed(3);
  nn::Sequential net(nn::Linear(2, 4), nn::ReLU(), nn::Linear(4, 3));
  data::DataLoader training(std::make_shared<Points>(8), {.batch_size = 4});
  auto options = with_cross_entropy();
  options.groups = {{"0"}, {"2"}};
  launch::Learner learner(job, {&training}, net, options);
  learner.freeze();
  CHECK(learner.summary() ==
        "Sequential of 4 x 2\n"
        "layer       output    parameters  trains\n"
        "----------------------------------------\n"
        "0 (Linear)  4 x 4             12  no\n"
        "1 (ReLU)    4 x 4              0  -\n"
        "2 (Linear)  4 x 3             15  yes\n"
        "----------------------------------------\n"
        "parameters: 27, of which 15 learn and 12 are frozen\n");
  CHECK(net.training());
  CHECK(training.epoch() == 0);
  CHECK(!net.child("0").has_hooks());
}

TEST_CASE("predictions by a whole loader are those of one rank, before the first fit") {
  const auto points = std::make_shared<Points>(7);
  for (const int world : {2, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group), alone;
      nn::Linear net = made_net();
      data::DataLoader loader(points, {.batch_size = 2});
      launch::Learner learner(job, {nullptr, &loader}, net, with_cross_entropy()),
          one(alone, {nullptr, &loader}, net, with_cross_entropy());
      const auto found = learner.get_preds(), expected = one.get_preds();
      CHECK(max(abs(found.predictions - expected.predictions)).item<float>() < 1e-6f);
      check_equal(found.targets, expected.targets);
    });
  }
}

TEST_CASE("where a model is wrong: the largest losses, and which class is taken for which") {
  const testing::Folder folder;
  // It takes the third class for the first, the surer the larger x is.
  const auto says = [](nn::Module&, const data::Batch& batch) {
    const auto x = batch.x.to_vector<float>();
    const auto y = batch.y.to_vector<std::int64_t>();
    std::vector<float> logits(y.size() * 3);
    for (std::size_t k = 0; k < y.size(); ++k) {
      logits[3 * k + (y[k] == 1 ? 1 : 0)] = x[2 * k] + 4;
    }
    return Tensor::from(logits, {std::ssize(y), 3}, Device{});
  };
  for (const int world : {1, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      data::DataLoader loader(std::make_shared<Points>(12), exact_share(job));
      auto options = with_cross_entropy();
      options.forward = says;
      launch::Learner learner(job, {nullptr, &loader}, made_net(), options);
      const auto found = launch::ClassificationInterpretation::from_learner(learner);
      using Confused = launch::ClassificationInterpretation::Confused;
      CHECK(found.confusion_matrix().to_vector<std::int64_t>() ==
            std::vector<std::int64_t>{4, 0, 0, 0, 4, 0, 4, 0, 0});
      CHECK(found.most_confused(4) == std::vector<Confused>{{"blue", "red", 4}});
      CHECK(found.most_confused(5).empty());
      std::vector<std::int64_t> worst;
      for (const auto& each : found.top_losses(4)) worst.push_back(each.sample);
      CHECK(worst == std::vector<std::int64_t>{5, 11, 2, 8});
      CHECK(found.top_losses(1)[0].loss == doctest::Approx(std::log(std::exp(6.0) + 2)));
      CHECK(found.top_losses().size() == 12);
      CHECK(found.top_losses(1, false)[0].sample == 6);
      CHECK(found.classification_report() ==
            "              precision    recall  f1-score   support\n\n"
            "         red       0.50      1.00      0.67         4\n"
            "       green       1.00      1.00      1.00         4\n"
            "        blue       0.00      0.00      0.00         4\n\n"
            "    accuracy                           0.67        12\n"
            "   macro avg       0.50      0.67      0.56        12\n"
            "weighted avg       0.50      0.67      0.56        12\n");
      const auto file = folder.path / concat(world, '_', job.rank(), ".svg");
      found.plot_confusion_matrix(file, true);
      CHECK(std::filesystem::exists(file) == job.is_main());
      if (!job.is_main()) return;
      std::stringstream text;
      text << std::ifstream(file).rdbuf();
      testing::check_has(text.str(), ">blue</text>");
      testing::check_has(text.str(), ">1.00</text>");
    });
  }
  launch::Job job;
  data::DataLoader loader(std::make_shared<Points>(4), exact_share(job));
  // Of 0, 1, 2, 0, of which the loss ignores 0, and so does the matrix.
  for (const bool by_nll : {false, true}) {
    auto options = with_cross_entropy();
    options.forward = says;
    options.loss = nn::CrossEntropyLoss{.ignore_index = 0};
    if (by_nll) options.loss = nn::NLLLoss{.ignore_index = 0};
    launch::Learner padded(job, {nullptr, &loader}, made_net(), options);
    CHECK(launch::ClassificationInterpretation::from_learner(padded)
              .confusion_matrix()
              .to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0, 0, 0, 1, 0, 1, 0, 0});
  }
  launch::Learner number(job, {nullptr, &loader}, made_net(),
                         {.loss = [](const Tensor& x, const Tensor&) { return mean(x); }});
  testing::check_has(
      testing::error_of([&] { launch::ClassificationInterpretation::from_learner(number); }),
      "expected classes, i64");
}
