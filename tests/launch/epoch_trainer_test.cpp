// SPDX-License-Identifier: Apache-2.0
// The EpochTrainer by itself: what a resumed run goes on with, a fit that fails or comes twice, and
// what a program adds to a training.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/ema.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/tests/folder.h>

#include "points.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace peal;
using testing::content_of;
using testing::Folder;
using testing::Points;

static_assert(!std::is_copy_constructible_v<launch::EpochTrainer>);
static_assert(!std::is_copy_assignable_v<launch::EpochTrainer>);

namespace {

Tensor loss_of(const Tensor& output, const Tensor& y) {
  return nll_loss(log_softmax(dropout(output, 0.2, true)), y);
}

// A program that trains: its weight and its bias at rates of their own.
struct Program {
  Program() { optimizer.add_group(NamedTensors{{"bias", net.bias}}, {.lr = 0.01}); }

  launch::Job job;
  nn::Linear net = [] {
    manual_seed(3);
    return nn::Linear(2, 3);
  }();
  nn::DistributedDataParallel model{net, job.group()};
  nn::AdamW optimizer{weight_of(net), {.lr = 0.1}};
  data::DataLoader training{std::make_shared<Points>(12),
                            {.batch_size = 4, .shuffle = true, .shard = Place{}, .seed = 1}};
  data::DataLoader test{std::make_shared<Points>(12), {.batch_size = 12}};
  launch::RunArguments arguments;
  std::vector<std::string> told;
  launch::Tell tell = [this](const std::string& line) { told.push_back(line); };

  static nn::Parameters weight_of(const nn::Linear& net) {
    return NamedTensors{{"weight", net.weight}};
  }
};

}  // namespace

TEST_CASE("a resumed run keeps the rate of each group, and ends as one that was not interrupted") {
  const Folder folder;
  const auto run = [&](int epochs, const char* resume, const char* save) {
    Program program;
    program.arguments.epochs = epochs;
    program.arguments.save = folder.path / save;
    if (*resume != 0) program.arguments.resume = folder.path / resume;
    launch::EpochTrainer trainer(program.job, program.arguments, program.model, program.optimizer);
    trainer.fit(program.training, program.test, loss_of);
    CHECK(program.optimizer.lr(0) == 0.1);
    CHECK(program.optimizer.lr(1) == 0.01);
  };
  run(3, "", "whole");
  run(1, "", "part");
  run(3, "part", "resumed");
  CHECK(content_of(folder.path / "part") != content_of(folder.path / "whole"));
  CHECK(content_of(folder.path / "resumed") == content_of(folder.path / "whole"));
}

TEST_CASE(
    "a fit that fails leaves no trace behind, and the next one trains what is still to come") {
  Program program;
  program.arguments.epochs = 3;
  program.arguments.profile = true;
  launch::EpochTrainer trainer(program.job, program.arguments, program.model, program.optimizer,
                               {.tell = program.tell});
  int steps = 0;
  const auto loss = [&](const Tensor& output, const Tensor& y) {
    CHECK(context().trace);
    if (++steps == 5) fail("the second step of the second epoch");
    return loss_of(output, y);
  };
  CHECK_THROWS_WITH_AS(trainer.fit(program.training, program.test, loss),
                       "the second step of the second epoch", Error);
  CHECK(!context().trace);
  CHECK(trainer.epochs().size() == 1);
  trainer.fit(program.training, program.test, loss);
  CHECK(trainer.epochs().size() == 3);
  CHECK(steps == 5 + 6);
  CHECK(program.training.epoch() == 3);
  const std::size_t lines = program.told.size();
  trainer.fit(program.training, program.test, loss);
  CHECK(trainer.epochs().size() == 3);
  CHECK(steps == 5 + 6);
  REQUIRE(program.told.size() == lines + 1);
  CHECK(program.told.back() == "all 3 epochs are done; there is nothing left to train");
}

TEST_CASE("a run is taken up whose parameters' names have blanks") {
  struct Blank : nn::Module {
    nn::Linear layer = add("a layer", nn::Linear(2, 3));
    Tensor forward(const Tensor& x) override { return layer(x); }
  };
  const Folder folder;
  for (const bool resumes : {false, true}) {
    launch::Job job;
    Blank net;
    nn::DistributedDataParallel model(net, job.group());
    nn::AdamW optimizer(net.named_parameters(), {.lr = 0.1});
    launch::RunArguments arguments;
    arguments.epochs = resumes ? 2 : 1;
    arguments.save = folder.path / "run";
    if (resumes) arguments.resume = folder.path / "run";
    launch::EpochTrainer trainer(job, arguments, model, optimizer);
    data::DataLoader training{std::make_shared<Points>(12), {.batch_size = 4}};
    data::DataLoader test{std::make_shared<Points>(12), {.batch_size = 12}};
    CHECK_NOTHROW(trainer.fit(training, test, loss_of));
  }
}

TEST_CASE("a setting of a name that is taken is an error before the training") {
  Program program;
  for (const std::string name : {"seed", "world", "batch_size", "precision", "epoch", "epochs"}) {
    INFO(name);
    const std::string words = concat("[launch] the setting '", name,
                                     "' is one of each training's own (seed, world, batch_size, "
                                     "precision, epoch, epochs, measure); rename it");
    CHECK_THROWS_WITH_AS(launch::EpochTrainer(program.job, program.arguments, program.model,
                                              program.optimizer, {.settings = {{name, "1"}}}),
                         words.c_str(), Error);
    CHECK_THROWS_WITH_AS(
        launch::write_json("/nowhere/at/all", program.arguments, 1, {{name, "1"}}, {}),
        words.c_str(), Error);
  }
  CHECK_THROWS_WITH_AS(launch::EpochTrainer(program.job, program.arguments, program.model,
                                            program.optimizer, {.settings = {{"peal.parts", "1"}}}),
                       "[launch] the setting 'peal.parts' starts with 'peal.', which is peal's "
                       "own; rename it",
                       Error);
}

TEST_CASE("an epoch without a batch is an error") {
  Program program;
  data::DataLoader none(std::make_shared<Points>(5), {.batch_size = 12, .drop_last = true});
  launch::EpochTrainer trainer(program.job, program.arguments, program.model, program.optimizer);
  CHECK_THROWS_WITH_AS(trainer.fit(none, program.test, loss_of),
                       "[launch] trainer: epoch 1 has no batch to learn from, of 5 samples; are "
                       "they fewer than a batch, and drop_last is set?",
                       Error);
  CHECK(trainer.epochs().empty());
}

TEST_CASE("an empty test set is an error before the training, not after an epoch of it") {
  Program program;
  data::DataLoader none(std::make_shared<Points>(0), {.batch_size = 12});
  launch::EpochTrainer trainer(program.job, program.arguments, program.model, program.optimizer);
  CHECK_THROWS_WITH_AS(trainer.fit(program.training, none, loss_of),
                       "[launch] trainer: the test set is empty, and the model is judged on it "
                       "after each epoch",
                       Error);
  CHECK(trainer.epochs().empty());
  CHECK(program.training.taken() == 0);
}

TEST_CASE("a program's own parts are stepped, saved and taken up") {
  const Folder folder;
  const auto run = [&](int epochs, const char* resume, const char* save, std::optional<double> lr) {
    Program program;
    program.arguments.epochs = epochs;
    program.arguments.lr = lr;
    program.arguments.save = folder.path / save;
    if (*resume != 0) program.arguments.resume = folder.path / resume;
    if (lr) {
      program.optimizer.set_lr(*lr, 0);
      program.optimizer.set_lr(*lr / 10, 1);
    }
    nn::LRScheduler scheduler(program.optimizer, nn::linear_lr(1, 0.1, 9));
    nn::ExponentialMovingAverage ema(program.net, {.decay = 0.5});
    launch::EpochTrainer trainer(
        program.job, program.arguments, program.model, program.optimizer,
        {.parts = {{"scheduler", scheduler}, {"ema", ema}}, .after_step = [&] {
           scheduler.step();
           ema.update();
         }});
    trainer.fit(program.training, program.test, loss_of);
    CHECK(scheduler.steps() == epochs * 3);
    CHECK(ema.updates() == epochs * 3);
    return std::pair(program.optimizer.lr(0), program.optimizer.lr(1));
  };
  run(3, "", "whole", {});
  run(1, "", "part", {});
  const auto [weight, bias] = run(3, "part", "resumed", {});
  CHECK(content_of(folder.path / "resumed") == content_of(folder.path / "whole"));
  run(3, "part", "same", 0.1);  // --lr, as it was
  CHECK(content_of(folder.path / "same") == content_of(folder.path / "whole"));
  const auto [doubled, smaller] = run(3, "part", "faster", 0.2);
  CHECK(doubled == doctest::Approx(2 * weight));
  CHECK(smaller == doctest::Approx(2 * bias));
  CHECK(content_of(folder.path / "faster") != content_of(folder.path / "whole"));
}

TEST_CASE("a loss of model and batch, what the model gives, and what it is judged by") {
  Program program;
  program.arguments.epochs = 2;
  int forwards = 0;
  launch::EpochTrainer trainer(
      program.job, program.arguments, program.model, program.optimizer,
      {.tell = program.tell,
       .forward =
           [&](nn::DistributedDataParallel& model, const data::Batch& batch) {
             ++forwards;
             return log_softmax(model(batch.x));
           },
       .metrics = {{"error rate", std::make_shared<nn::ErrorRate>()},
                   {"accuracy", std::make_shared<nn::Accuracy>()}}});
  std::vector<double> losses;
  trainer.fit(program.training, program.test,
              [&](nn::DistributedDataParallel& model, const data::Batch& batch) {
                const Tensor loss = nll_loss(log_softmax(model(batch.x)), batch.y);
                losses.push_back(loss.item<double>());
                return loss;
              });
  CHECK(losses.size() == 6);
  CHECK(forwards == 2);  // of evaluations
  REQUIRE(trainer.epochs().size() == 2);
  CHECK(trainer.epochs()[1].loss == (losses[3] + losses[4] + losses[5]) / 3);
  const std::vector<launch::Value>& found = trainer.epochs()[1].metrics;
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "error rate");
  CHECK(found[0].value == 1 - found[1].value);
  CHECK(trainer.evaluate(program.test) == found);
  CHECK(found[1].value == launch::accuracy(program.model, program.test, program.job.group()));
  const std::string& line = program.told.back();
  CHECK(line.find(concat(", test ", launch::in_words({found[0]}), ", test ",
                         launch::in_words({found[1]}), ", ")) != line.npos);
  // The same by a loss of the output, through forward.
  Program other;
  other.arguments.epochs = 2;
  launch::EpochTrainer by_output(
      other.job, other.arguments, other.model, other.optimizer,
      {.forward = [](nn::DistributedDataParallel& model, const data::Batch& batch) {
        return log_softmax(model(batch.x));
      }});
  by_output.fit(other.training, other.test,
                [](const Tensor& output, const Tensor& y) { return nll_loss(output, y); });
  CHECK(by_output.epochs()[1].loss == trainer.epochs()[1].loss);
  CHECK(by_output.epochs()[1].metrics == std::vector<launch::Value>{found[1]});
}

TEST_CASE("after_step comes after steps alone, not where one was left out") {
  Program program;
  program.arguments.precision = "f16";
  int after = 0, losses = 0;
  launch::EpochTrainer trainer(program.job, program.arguments, program.model, program.optimizer,
                               {.after_step = [&] { ++after; }});
  trainer.fit(program.training, program.test, [&](const Tensor& output, const Tensor& y) {
    const Tensor loss = loss_of(output, y);
    return ++losses == 2 ? loss * std::numeric_limits<double>::infinity() : loss;
  });
  std::int64_t steps = 0;
  for (const auto& [name, tensor] : program.optimizer.state_dict()) {
    if (name == "weight.step") steps = tensor.item<std::int64_t>();
  }
  CHECK(losses == 3);
  CHECK(steps > 0);
  CHECK(steps < 3);
  CHECK(after == steps);
}

TEST_CASE("a rate that is asked for is a resumed run's, each group's in its proportion") {
  const Folder folder;
  Program program;
  program.arguments.save = folder.path / "part";
  launch::EpochTrainer(program.job, program.arguments, program.model, program.optimizer)
      .fit(program.training, program.test, loss_of);
  program.optimizer.set_lr(0.5, 0);
  program.optimizer.set_lr(0.05, 1);
  program.arguments.resume = program.arguments.save;
  program.arguments.epochs = 2;
  program.arguments.lr = 0.5;
  const launch::EpochTrainer asked(program.job, program.arguments, program.model,
                                   program.optimizer);
  CHECK(program.optimizer.lr(0) == 0.5);
  CHECK(program.optimizer.lr(1) == 0.05);
  program.arguments.lr.reset();
  const launch::EpochTrainer not_asked(program.job, program.arguments, program.model,
                                       program.optimizer);
  CHECK(program.optimizer.lr(0) == 0.1);
  CHECK(program.optimizer.lr(1) == 0.01);
}

TEST_CASE("two parts of one name are an error before the training") {
  Program program;
  for (const std::string name : {"model", "random"}) {
    const std::string words =
        "[launch] two parts of a checkpoint are called '" + name + "'; rename one";
    CHECK_THROWS_WITH_AS(
        launch::EpochTrainer(program.job, program.arguments, program.model, program.optimizer,
                             {.parts = {{name, program.training}}}),
        words.c_str(), Error);
  }
}

TEST_CASE("a checkpoint of before, with one offset for all ranks, is taken up") {
  const Folder folder;
  Program program;
  program.arguments.epochs = 2;
  program.arguments.resume = folder.path / "old";
  nn::GradScaler scaler({.enabled = false});
  nn::save(
      program.arguments.resume,
      {{"model", program.model},
       {"optimizer", program.optimizer},
       {"scaler", scaler},
       {"random", RandomState{}}},
      {{"epoch", "1"}, {"seed", "0"}, {"world", "1"}, {"batch_size", "32"}, {"precision", "f32"}});
  const auto saved = context().generator.offset;
  const launch::EpochTrainer trainer(program.job, program.arguments, program.model,
                                     program.optimizer);
  CHECK(saved > 0);
  CHECK(context().generator.offset == saved);
}

TEST_CASE("what a program keeps beside a checkpoint is written with it, not before") {
  const Folder folder;
  Program program;
  program.arguments.epochs = 2;
  program.arguments.save = folder.path / "saved";
  int saves = 0, steps = 0;
  launch::EpochTrainer trainer(
      program.job, program.arguments, program.model, program.optimizer, {.before_save = [&] {
        CHECK(std::filesystem::exists(program.arguments.save) == (saves > 0));
        ++saves;
      }});
  const auto fit = [&] {
    trainer.fit(program.training, program.test, [&](const Tensor& output, const Tensor& y) {
      if (++steps == 2) fail("a step of the first epoch");
      return loss_of(output, y);
    });
  };
  CHECK_THROWS_WITH_AS(fit(), "a step of the first epoch", Error);
  CHECK(saves == 0);
  fit();
  CHECK(saves == 2);
}
