// SPDX-License-Identifier: Apache-2.0
// Learners for images and texts by their makers.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/text.h>
#include <peal/launch/training/learner/vision.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace peal;

namespace {

// Images that are bright on the left or on the right.
struct Sides : data::Dataset {
  std::int64_t size() const override { return 12; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    const auto n = std::ssize(indices);
    const Tensor x = Tensor::zeros({n, 3, 8, 8}, DType::f32, Device{});
    std::vector<std::int64_t> y;
    for (std::int64_t i = 0; i < n; ++i) {
      y.push_back(indices[i] % 2);
      for (std::int64_t at = 0; at < 3 * 64; ++at) {
        const bool right = at % 8 >= 4;
        const auto noise = static_cast<float>((at * 7 + indices[i] * 13) % 5) / 10;
        x.data<float>()[i * 3 * 64 + at] = (right == (y.back() == 1) ? 1.0f : 0.0f) + noise;
      }
    }
    return {x, Tensor::from(y, {n}, Device{})};
  }
};

std::set<std::string> names_that_learn(const nn::Module& model) {
  std::set<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.requires_grad()) names.insert(name);
  }
  return names;
}

// Texts of "good" or "bad" words, of several lengths; numbers of words are from 9 on.
launch::LabelledTexts texts_of(std::int64_t count) {
  launch::LabelledTexts all;
  for (std::int64_t k = 0; k < count; ++k) {
    data::TokenIds text;
    for (std::int64_t i = 0; i < 3 + k * 5 % 7; ++i)
      text.push_back(9 + k % 2 * 4 + (k + i * 3) % 4);
    all.texts.push_back(text);
    all.classes.push_back(k % 2);
  }
  return all;
}

data::Vocabulary small_words() {
  std::vector<data::Tokens> texts(1);
  for (const char* word : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    for (int i = 0; i < 3; ++i) texts[0].push_back(word);
  }
  return data::Vocabulary(texts);
}

// Without dropout, so that ranks learn as one.
nn::AwdLstmSettings small_lstm(const data::Vocabulary& words) {
  nn::AwdLstmSettings settings = nn::awd_lstm_language_model(words.size(), 0);
  settings.emb_sz = 6;
  settings.n_hid = 8;
  settings.n_layers = 2;
  return settings;
}

// So that ranks' sums differ by nothing that matters.
Tensor in_f64(nn::Module& model, const data::Batch& batch) {
  return model(cast(batch.x, DType::f64));
}

launch::OptimizerFactory plain_sgd() { return launch::optimizer_of<nn::SGD>(nn::SGDOptions{}); }

}  // namespace

TEST_CASE("a vision learner has fastai's names and groups, and the body's own weights") {
  launch::Job job;
  manual_seed(3);
  nn::ResNet net({{1, 1, 1, 1}}, {.num_classes = 10, .small_images = true});
  launch::DataLoaders dls(job, std::make_shared<Sides>(), nullptr, {.batch_size = 6});
  auto learner = launch::vision_learner(job, dls, net, {"left", "right"});
  const auto state = learner.model.state_dict();
  std::set<std::string> keys;
  for (const auto& [name, tensor] : state) keys.insert(name);
  for (const char* key :
       {"0.0.weight", "0.1.running_mean", "0.4.0.conv1.weight", "0.7.0.downsample.0.weight",
        "1.2.weight", "1.4.weight", "1.6.bias", "1.8.weight"}) {
    CHECK_MESSAGE(keys.contains(key), key);
  }
  CHECK(!keys.contains("1.4.bias"));
  CHECK(learner.model.get_parameter("1.4.weight").shape() == Shape{512, 1024});
  CHECK(learner.model.get_parameter("0.0.weight").data<float>() == net.conv1.weight.data<float>());
  learner.freeze();
  const auto norms_and_head = names_that_learn(learner.model);
  CHECK(norms_and_head.contains("1.8.weight"));
  CHECK(norms_and_head.contains("0.1.weight"));
  CHECK(!norms_and_head.contains("0.0.weight"));
  learner.freeze_to(1);
  CHECK(names_that_learn(learner.model).contains("0.6.0.conv1.weight"));
  CHECK(!names_that_learn(learner.model).contains("0.5.0.conv1.weight"));
  CHECK(testing::error_of([&] { launch::vision_learner(job, dls, net, {}); }) != "nothing");
}

TEST_CASE("a vision learner learns on two ranks what it learns on one, and is exported") {
  const testing::Folder folder;
  std::vector<double> losses[3];
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      manual_seed(3);
      nn::ResNet net({{1, 1, 1, 1}}, {.small_images = true});
      const auto sides = std::make_shared<Sides>();
      launch::DataLoaders dls(job, sides, sides, {.batch_size = 6 / world, .seed = 1});
      auto learner = launch::vision_learner(job, dls, net, {"left", "right"},
                                            {.forward = in_f64, .optimizer = plain_sgd()},
                                            {.lin_ftrs = {8}, .ps = 0});
      learner.model.to(DType::f64);
      {
        const auto all_ranks = learner.distrib_ctx();
        learner.fit(2, 0.02);
      }
      const auto found = learner.get_preds();
      if (job.is_main()) losses[world] = learner.recorder().batch_losses;
      const auto file = folder.path / concat("sides", world);
      learner.export_to(file);
      nn::ResNet other({{1, 1, 1, 1}}, {.small_images = true});
      auto loaded = launch::load_learner(
          job, file,
          launch::vision_model(other, std::ssize(launch::exported(file).classes),
                               {.lin_ftrs = {8}, .ps = 0}),
          {.loss = nn::CrossEntropyLoss{}, .forward = in_f64});
      loaded.model.to(DType::f64);
      const Tensor again = loaded.get_preds(&dls.valid()).predictions;
      CHECK(max(abs(again - found.predictions)).item<double>() < 1e-6);
    });
  }
  REQUIRE(losses[1].size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(losses[2].at(i) == doctest::Approx(losses[1][i]).epsilon(1e-8));
}

TEST_CASE("two ranks learn a language as one, and what is recorded is the loss alone") {
  const auto words = small_words();
  std::vector<data::TokenIds> texts = texts_of(24).texts;
  std::vector<double> losses[3];
  std::vector<float> weights[3];
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto dls = launch::language_model_loaders(job, texts, texts,
                                                {.batch_size = 4 / world, .seq_len = 5});
      manual_seed(3);
      auto learner = launch::language_model_learner(
          job, dls, words,
          {.optimizer = plain_sgd(),
           .metrics = {{"perplexity", std::make_shared<nn::Perplexity>()}}},
          small_lstm(words));
      Tensor first;
      {
        const NoGrad guard;
        learner.model.eval();
        const data::Batch batch = dls.valid().dataset().get(std::vector<std::int64_t>{0, 1, 2, 3});
        first = cross_entropy(transpose(learner.model(batch.x), 1, 2), batch.y);
        learner.model.reset();
      }
      const double before = learner.validate().at(0).value;
      learner.fit(2, 1.0);
      CHECK(learner.validate().at(0).value < before);
      if (!job.is_main()) return;
      losses[world] = learner.recorder().batch_losses;
      weights[world] = learner.model.get_parameter("0.encoder.weight").detach().to_vector<float>();
      CHECK(learner.recorder().settings["mom"].empty());
      // A model that knows nothing: near the logarithm of the number of words.
      CHECK(losses[world][0] == doctest::Approx(first.item<float>()).epsilon(0.05));
    });
  }
  REQUIRE(losses[1].size() > 4);
  for (std::size_t i = 0; i < losses[1].size(); ++i)
    CHECK(losses[2].at(i) == doctest::Approx(losses[1][i]).epsilon(1e-4));
  for (std::size_t i = 0; i < weights[1].size(); ++i)
    CHECK(weights[2][i] == doctest::Approx(weights[1][i]).epsilon(1e-3));
}

TEST_CASE("activations are regularised in what is learnt from") {
  struct Watch : launch::Callback {
    int order() const override { return 70; }
    void before_backward(launch::Loop& loop) override { learnt.push_back(loop.loss.item<float>()); }
    void after_batch(launch::Loop& loop) override {
      if (loop.training) recorded.push_back(loop.loss.item<float>());
    }
    std::vector<double> learnt, recorded;
  };
  const auto words = small_words();
  launch::Job job;
  auto dls = launch::language_model_loaders(job, texts_of(24).texts, texts_of(4).texts,
                                            {.batch_size = 4, .seq_len = 5});
  manual_seed(3);
  const auto watch = std::make_shared<Watch>();
  auto learner = launch::language_model_learner(
      job, dls, words, {.optimizer = plain_sgd(), .callbacks = {watch}}, small_lstm(words));
  const data::Batch batch = dls.valid().dataset().get(std::vector<std::int64_t>{0});
  learner.fit(1, 1e-6);
  REQUIRE(watch->learnt.size() == watch->recorded.size());
  for (std::size_t i = 0; i < watch->learnt.size(); ++i)
    CHECK(watch->learnt[i] > watch->recorded[i]);
  CHECK(learner.recorder().batch_losses == watch->recorded);
  auto* const model = learner.model.as<nn::AwdLanguageModel>();
  const auto outputs = model->run(batch.x);
  launch::RNNRegularizer by_hand;
  by_hand.raw = outputs.raw;
  by_hand.dropped = outputs.dropped;
  learner.loss = zeros({});
  by_hand.before_backward(learner);
  CHECK(learner.loss.item<float>() ==
        doctest::Approx(
            nn::activation_regularization(outputs.raw, outputs.dropped, 2, 1).item<float>()));
  by_hand.after_backward(learner);
  CHECK(learner.loss.item<float>() == 0);
}

TEST_CASE("a classifier begins with a language model's encoder, and two ranks learn it as one") {
  const testing::Folder folder;
  const auto words = small_words();
  std::vector<double> losses[3];
  std::vector<float> said[3];
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      const auto file = folder.path / concat("encoder", world);
      manual_seed(3);
      auto speaker = launch::language_model_learner(job, {}, words, {}, small_lstm(words));
      launch::save_encoder(speaker, file);

      auto dls = launch::text_classifier_loaders(job, texts_of(16), texts_of(9),
                                                 {.batch_size = 4 / world, .seq_len = 4});
      manual_seed(world + 8);
      auto learner = launch::text_classifier_learner(
          job, dls, words, {"good", "bad"}, {.optimizer = plain_sgd()}, small_lstm(words),
          {.seq_len = 4, .max_len = 80, .lin_ftrs = {5}, .ps = {0}});
      launch::load_encoder(learner, file);
      CHECK(sum(abs(learner.model.get_parameter("0.module.encoder.weight") -
                    speaker.model.get_parameter("0.encoder.weight")))
                .item<float>() == 0);
      learner.freeze();
      for (const std::string& name : names_that_learn(learner.model)) CHECK(name.starts_with("1."));
      learner.freeze_to(-2);
      CHECK(names_that_learn(learner.model).contains("0.module.rnns.1.weight_hh_l0_raw"));
      CHECK(!names_that_learn(learner.model).contains("0.module.rnns.0.weight_hh_l0_raw"));
      learner.unfreeze();
      // The same head on both worlds.
      manual_seed(11);
      const NamedTensors head =
          nn::AwdTextClassifier(small_lstm(words), 2,
                                {.seq_len = 4, .max_len = 80, .lin_ftrs = {5}, .ps = {0}})
              .head.state_dict();
      nn::Module own_head = learner.model.get_submodule("1");
      own_head.load_state_dict(head);
      {
        const auto all_ranks = learner.distrib_ctx();
        learner.fit(2, 0.1);
      }
      const auto found = learner.get_preds();
      CHECK(found.targets.to_vector<std::int64_t>() == texts_of(9).classes);
      const auto exported = folder.path / concat("texts", world);
      learner.export_to(exported);
      auto loaded = launch::load_text_classifier_learner(job, exported);
      CHECK(launch::vocabulary_in(exported).words() == words.words());
      CHECK(
          max(abs(loaded.get_preds(&dls.valid()).predictions - found.predictions)).item<float>() ==
          0);
      const auto one = loaded.predict(Tensor::from(texts_of(9).texts[4], {9}, Device{}));
      CHECK(max(abs(one.predictions - select(found.predictions, 0, 4))).item<float>() < 1e-6f);
      if (!job.is_main()) return;
      losses[world] = learner.recorder().batch_losses;
      said[world] = found.predictions.to_vector<float>();
    });
  }
  REQUIRE(losses[1].size() == 8);
  for (std::size_t i = 0; i < losses[1].size(); ++i)
    CHECK(losses[2].at(i) == doctest::Approx(losses[1][i]).epsilon(1e-3));
  for (std::size_t i = 0; i < said[1].size(); ++i)
    CHECK(said[2][i] == doctest::Approx(said[1][i]).epsilon(1e-3));
  launch::Job job;
  nn::Linear net(2, 3);
  launch::Learner other(job, {}, net, {.loss = nn::CrossEntropyLoss{}});
  testing::check_has(testing::error_of([&] { launch::save_encoder(other, folder.path / "none"); }),
                     "expected the learner of a language model");
  other.export_to(folder.path / "points");
  testing::check_has(
      testing::error_of([&] { launch::load_text_classifier_learner(job, folder.path / "points"); }),
      "was not exported by a learner of texts");
}

TEST_CASE("within a fit that shares the optimizer out the model alone is saved, whole") {
  struct Save : launch::Callback {
    explicit Save(std::filesystem::path f) : file(std::move(f)) {}
    void after_epoch(launch::Loop& loop) override {
      auto& learner = dynamic_cast<launch::Learner&>(loop);
      testing::check_has(testing::error_of([&] { learner.save(file); }), "do it after the fit");
      learner.save(file, false);
    }
    std::filesystem::path file;
  };
  const testing::Folder folder;
  for (const char* strategy : {"zero1", "fsdp"}) {
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      manual_seed(3);
      nn::Linear net(2, 3);
      data::DataLoader training(std::make_shared<testing::Points>(8), {.batch_size = 2});
      const auto file = folder.path / strategy;
      launch::Learner learner(job, {&training}, net,
                              {.loss = nn::CrossEntropyLoss{},
                               .callbacks = {std::make_shared<Save>(file)},
                               .strategy = strategy});
      learner.fit(1, 0.1);
      nn::Linear other(2, 3);
      launch::Learner loaded(job, {}, other, {.loss = nn::CrossEntropyLoss{}});
      loaded.load(file, false);
      CHECK(sum(abs(other.weight - net.weight)).item<float>() == 0);
    });
  }
}
