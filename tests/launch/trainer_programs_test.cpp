// SPDX-License-Identifier: Apache-2.0
// What a program adds to a Trainer: loaders and layer groups of its own, what is saved with a run
// and beside it, and a run that is exported.
#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/trainer/export_run.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/nn/optim/ema.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "rank_errors.h"
#include "trainer_program.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::content_of;
using testing::error_of;
using testing::errors_of;
using testing::Folder;
using testing::forward_with;
using testing::Numbered;
using testing::quiet;
using testing::saving;
using testing::small_net;
using testing::weights_of;

namespace {

struct AfterUpdate : launch::TrainerCallback {
  explicit AfterUpdate(std::function<void()> f) : then(std::move(f)) {}
  void on_optimizer_step(launch::Trainer&, launch::TrainerControl&) override { then(); }
  std::function<void()> then;
};

std::string newest_content(const std::filesystem::path& folder) {
  return content_of(nn::CheckpointFolder(folder).latest().value());
}

// It ends so on each of two ranks.
void check_errors(const std::function<void(launch::Job&)>& f, const std::string& part) {
  for (const std::string& error : errors_of(2, f)) check_has(error, part);
}

}  // namespace

TEST_CASE("layer groups have rates of their own, and each parameter is in one") {
  launch::Job job;
  nn::Linear net = small_net();
  auto arguments = quiet();
  arguments.lr_scheduler_type = "constant";
  arguments.weight_decay = 0.1;
  const auto set = std::make_shared<Numbered>(4);
  launch::Trainer trainer(
      job, net, arguments,
      {.train_dataset = set, .layer_groups = {{{net.weight}, 0.5}, {{net.bias}}}});
  trainer.train();
  REQUIRE(trainer.optimizer->group_count() == 2);
  CHECK(trainer.optimizer->lr(0) == 0.05);
  CHECK(trainer.optimizer->lr(1) == 0.1);
  CHECK(trainer.optimizer->setting("weight_decay", 0) == 0.1);
  CHECK(trainer.optimizer->setting("weight_decay", 1) == 0);
  const auto refused = [&](std::vector<launch::LayerGroup> groups) {
    launch::Trainer other(job, net, arguments, {.train_dataset = set, .layer_groups = groups});
    return error_of([&] { other.train(); });
  };
  check_has(refused({{{net.weight}}}), "the parameter bias is in none");
  check_has(refused({{{net.weight, net.bias}}, {{net.bias}}}), "or is in another group, too");
}

TEST_CASE("loaders of one's own are learnt from and judged with") {
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [](const comm::ProcessGroup& group) {
      launch::Job job(group);
      testing::SeenSamples seen;
      auto arguments = quiet();
      arguments.eval_strategy = "epoch";
      const auto set = std::make_shared<Numbered>(12);
      int judged = 0;
      launch::Trainer trainer(
          job, small_net(), arguments,
          {.eval_dataset = set,
           .train_dataloader =
               [&] {
                 return std::make_unique<data::DataLoader>(
                     set, data::LoaderOptions{.batch_size = 2, .shard = job.place()});
               },
           .eval_dataloader =
               [&](const data::DatasetRef& given) {
                 CHECK(given == set);
                 ++judged;
                 return std::make_unique<data::DataLoader>(
                     given,
                     data::LoaderOptions{.batch_size = 3, .shard = job.place(), .exact = true});
               },
           .forward = forward_with(0, &seen)});
      const launch::TrainOutput output = trainer.train();
      CHECK(output.global_step == 6 / job.world());
      CHECK(output.metrics[1].name == "train_samples_per_second");
      CHECK(output.metrics[1].value > 0);
      CHECK(judged == 1);
      CHECK(static_cast<int>(seen.all.size()) == 12 / job.world());
    });
  }
  launch::Job job;
  auto arguments = quiet();
  arguments.group_by_length = true;
  check_has(error_of([&] {
              launch::Trainer(job, small_net(), arguments,
                              {.train_dataloader = [] { return nullptr; }});
            }),
            "group_by_length: the program's own loader");
}

TEST_CASE("parts of one's own are saved and taken up, and a rate that is asked for counts") {
  const Folder folder;
  const auto train = [&](const char* to, int epochs, const std::string& from, double rate) {
    launch::Job job;
    nn::Linear net = small_net();
    nn::ExponentialMovingAverage ema(net, {.decay = 0.5});
    auto arguments = saving(folder.path / to);
    arguments.num_train_epochs = epochs;
    arguments.learning_rate = rate;
    arguments.lr_scheduler_type = "inverse_sqrt";
    arguments.save_strategy = "epoch";
    arguments.resume_from_checkpoint = from.empty() ? from : (folder.path / from).string();
    const auto updates = std::make_shared<AfterUpdate>([&ema] { ema.update(); });
    launch::Trainer trainer(job, net, arguments,
                            {.train_dataset = std::make_shared<Numbered>(6),
                             .forward = forward_with(0.3),
                             .callbacks = {updates},
                             .parts = {{"ema", ema}}});
    trainer.train();
    CHECK(ema.updates() == 3 * epochs);
    return trainer.optimizer->lr();
  };
  const double whole = train("whole", 3, "", 0.1);
  train("part", 1, "", 0.1);
  CHECK(train("resumed", 3, "part", 0.1) == whole);
  CHECK(newest_content(folder.path / "resumed") == newest_content(folder.path / "whole"));
  CHECK(train("faster", 3, "part", 0.2) == doctest::Approx(2 * whole));
  CHECK(newest_content(folder.path / "faster") != newest_content(folder.path / "whole"));
}

TEST_CASE("what a checkpoint is of no use without lies beside it, and not where a run is refused") {
  const Folder folder;
  const auto train = [&](launch::Job& job, const std::string& words, bool fails = false) {
    auto arguments = saving(folder.path / "run");
    arguments.resume_from_checkpoint = "true";
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(8),
                             .settings = {{"data", words}},
                             .save_processing = [&](const std::string& to) {
                               CHECK(job.is_main());
                               if (fails) fail("no words");
                               std::ofstream(launch::beside(to, ".words")) << words;
                             }});
    trainer.train();
  };
  check_errors([&](launch::Job& job) { train(job, "a", true); },
               "[trainer] save_processing: rank 0: no words");
  CHECK(nn::CheckpointFolder(folder.path / "run").files().empty());
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    train(job, "a");
  });
  const auto newest = nn::CheckpointFolder(folder.path / "run").latest().value();
  CHECK(content_of(launch::beside(newest, ".words")) == "a");
  CHECK(launch::setting_in(newest, "data") == "a");
  check_has(error_of([&] { launch::setting_in(newest, "width"); }), "has no setting 'width'");
  for (const std::string& error : errors_of(2, [&](launch::Job& job) { train(job, "b"); }))
    check_has(error, "it was saved with data a, and this run has b");
  CHECK(content_of(launch::beside(newest, ".words")) == "a");
}

TEST_CASE("a run is taken up whose parameters' names have blanks") {
  struct Blank : nn::Module {
    nn::Linear layer = add("a layer", nn::Linear(2, 3));
    Tensor forward(const Tensor& x) override { return layer(x); }
  };
  const Folder folder;
  auto arguments = saving(folder.path);
  arguments.resume_from_checkpoint = "true";
  for (const int epochs : {1, 2}) {
    arguments.num_train_epochs = epochs;
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      launch::Trainer trainer(job, Blank(), arguments,
                              {.train_dataset = std::make_shared<Numbered>(8)});
      CHECK(trainer.train().global_step == 2 * epochs);
    });
  }
}

TEST_CASE("a setting or a part whose name is taken, and data that is not there, are errors") {
  launch::Job job;
  const auto refused = [&](launch::TrainingArguments arguments, launch::TrainerOptions options) {
    return error_of([&] {
      options.forward = forward_with(0);
      launch::Trainer(job, small_net(), arguments, std::move(options)).train();
    });
  };
  for (const std::string name : {"seed", "world", "precision", "step", "trainer_state", "measure"})
    check_has(refused(quiet(), {.settings = {{name, "1"}}}),
              concat("the setting '", name, "' is one that each run has for itself; rename it"));
  check_has(refused(quiet(), {.settings = {{"peal.parts", "1"}}}), "which is peal's own");
  nn::Linear other = small_net();
  for (const std::string name : {"model", "random"})
    check_has(refused(quiet(),
                      {.train_dataset = std::make_shared<Numbered>(4), .parts = {{name, other}}}),
              "two parts of a checkpoint are called '" + name + "'; rename one");
  auto arguments = quiet();
  arguments.eval_strategy = "epoch";
  check_has(refused(arguments, {.train_dataset = std::make_shared<Numbered>(4),
                                .eval_dataset = std::make_shared<Numbered>(0)}),
            "the data to evaluate with is empty");
  arguments = quiet();
  arguments.dataloader_drop_last = true;
  check_has(refused(arguments, {.train_dataset = std::make_shared<Numbered>(3)}),
            "an epoch has no batch to learn from");
}

TEST_CASE("a wish to save where there is no folder is an error") {
  struct Save : launch::TrainerCallback {
    void on_step_end(launch::Trainer& trainer, launch::TrainerControl& control) override {
      control.should_save = trainer.job.is_main();
    }
  };
  check_errors(
      [](launch::Job& job) {
        auto arguments = quiet();
        arguments.output_dir.clear();
        launch::Trainer(job, small_net(), arguments,
                        {.train_dataset = std::make_shared<Numbered>(16),
                         .callbacks = {std::make_shared<Save>()}})
            .train();
      },
      "should_save: a checkpoint needs a folder, and there is none");
}

TEST_CASE("an exported run has what another program needs to train the same") {
  const Folder folder;
  const std::string file = folder.path / "run";
  launch::Job job;
  auto arguments = quiet();
  arguments.num_train_epochs = 2;
  const auto set = std::make_shared<Numbered>(8);
  const auto exported = [&](const std::string& to) {
    nn::Linear net = small_net();
    launch::TrainerOptions options{.train_dataset = set, .eval_dataset = set};
    if (!to.empty()) options.callbacks = {std::make_shared<launch::ExportRun>(to)};
    launch::Trainer trainer(job, net, arguments, options);
    trainer.train();
    return weights_of(net);
  };
  CHECK(exported(file) == exported(""));
  const Safetensors found = load_safetensors(file);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : found.tensors) names.push_back(name);
  for (const char* each : {"model.weight", "model.bias", "train.0.0.x", "train.0.1.y",
                           "train.1.1.x", "test.0.x", "rates"})
    CHECK(std::find(names.begin(), names.end(), each) != names.end());
  for (const auto& [name, tensor] : found.tensors) {
    if (name == "model.weight")
      CHECK(tensor.to_vector<float>() == small_net().weight.detach().to_vector<float>());
    if (name != "rates") continue;
    CHECK(tensor.shape() == Shape{4, 2});  // weight and bias
    const auto rates = tensor.to_vector<double>();
    for (std::size_t step = 0; step < 4; ++step)
      CHECK(rates[2 * step] == doctest::Approx(0.1 - 0.025 * static_cast<double>(step)));
  }
  check_errors(
      [&](launch::Job& two) {
        launch::Trainer(
            two, small_net(), arguments,
            {.train_dataset = set, .callbacks = {std::make_shared<launch::ExportRun>(file + "2")}})
            .train();
      },
      "expected a run of one rank, got one of 2");
  CHECK(!std::filesystem::exists(file + "2"));
}
