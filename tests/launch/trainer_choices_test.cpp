// SPDX-License-Identifier: Apache-2.0
// What a Trainer's arguments choose: units of fsdp, and optimizers, of which one trains at other
// points than a model is judged and saved at.
#include <doctest/doctest.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/activation.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/schedule_free.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "trainer_program.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::AtStep;
using testing::Folder;
using testing::forward_with;
using testing::logged;
using testing::Numbered;
using testing::quiet;
using testing::small_net;
using testing::weights_of;

namespace {

nn::Sequential two_layers() {
  manual_seed(3);
  return nn::Sequential(nn::Linear(2, 4), nn::ReLU(), nn::Linear(4, 3));
}

double farthest(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = testing::larger(most, std::abs(double{a[i]} - double{b[i]}));
  return most;
}

launch::TrainingArguments schedule_free() {
  auto arguments = quiet();
  arguments.optim = "schedule_free_adamw";
  arguments.lr_scheduler_type = "constant";
  arguments.warmup_steps = 2;
  return arguments;
}

}  // namespace

TEST_CASE("units of fsdp come by arguments or by options, and train what ddp trains") {
  const auto trained = [](const std::string& classes, const nn::WrapPolicy& wrap,
                          const std::string& strategy, std::size_t& units) {
    std::vector<float> weights;
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto arguments = quiet();
      arguments.strategy = strategy;
      arguments.fsdp_transformer_layer_cls_to_wrap = classes;
      arguments.fsdp_offload_params = strategy == "fsdp";
      arguments.gradient_accumulation_steps = 2;
      nn::Sequential net = two_layers();
      launch::Trainer* there = nullptr;
      launch::Trainer trainer(job, net, arguments,
                              {.train_dataset = std::make_shared<Numbered>(24),
                               .eval_dataset = std::make_shared<Numbered>(5),
                               .forward = forward_with(0),
                               .callbacks = {std::make_shared<AtStep>([&](std::int64_t step) {
                                 if (step != 1 || !job.is_main() || strategy != "fsdp") return;
                                 units = there->prepared_model()->fsdp()->units().size();
                               })},
                               .fsdp = {.wrap = wrap}});
      there = &trainer;
      trainer.train();
      if (job.is_main()) weights = weights_of(net);
    });
    return weights;
  };
  std::size_t none = 0, by_class = 0, by_policy = 0, whole = 0;
  const auto wanted = trained("", {}, "ddp", none);
  CHECK(farthest(trained("", {}, "fsdp", whole), wanted) < 1e-6);
  CHECK(farthest(trained("Linear", {}, "fsdp", by_class), wanted) < 1e-6);
  CHECK(farthest(trained("", nn::wrap_by_name({"2"}), "fsdp", by_policy), wanted) < 1e-6);
  CHECK(whole == 1);
  CHECK(by_class == 3);  // the model itself is one
  CHECK(by_policy == 2);
  std::size_t unused = 0;
  testing::check_has(testing::error_of([&] { trained("GptBlock", {}, "fsdp", unused); }),
                     "the model has no module of the class GptBlock, but of:");
}

TEST_CASE("classes of units that are wrong on one rank are an Error on all") {
  std::vector<std::string> told(2);
  std::barrier all(2);  // none leaves before both have failed, so none hears it by that
  comm::run_ranks(2, {.deadline = std::chrono::seconds(10)}, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto arguments = quiet();
    arguments.strategy = "fsdp";
    arguments.fsdp_transformer_layer_cls_to_wrap = job.rank() == 1 ? "Linear,,ReLU" : "Linear";
    told[static_cast<std::size_t>(job.rank())] = testing::error_of([&] {
      launch::Trainer(job, two_layers(), arguments,
                      {.train_dataset = std::make_shared<Numbered>(8)});
    });
    all.arrive_and_wait();
  });
  for (const std::string& words : told) testing::check_has(words, "got 'Linear,,ReLU'");
}

TEST_CASE("optimizers by their names") {
  for (const auto& [name, settings] : std::vector<std::pair<std::string, std::string>>{
           {"adamw_torch", "beta2"},
           {"adamw_torch_fused", "beta2"},
           {"sgd", "momentum"},
           {"adafactor", "beta2_decay"},
           {"adagrad", "lr_decay"},
           {"rmsprop", "alpha"},
           {"lion_32bit", "beta1"},
           {"schedule_free_adamw", "weight_lr_power"}}) {
    CAPTURE(name);
    launch::Job job;
    auto arguments = quiet();
    arguments.optim = name;
    arguments.weight_decay = 0.25;
    launch::Trainer trainer(
        job, small_net(), arguments,
        {.train_dataset = std::make_shared<Numbered>(8), .forward = forward_with(0)});
    trainer.train();
    CHECK(trainer.optimizer->has_setting(settings));
    CHECK(trainer.optimizer->setting("weight_decay", 0) == 0.25);
    CHECK(trainer.optimizer->setting("weight_decay", 1) == 0);  // biases
    for (const double loss : logged(trainer.state(), "loss")) CHECK(std::isfinite(loss));
  }
}

TEST_CASE("schedule-free: ranks train as one, and what is judged is what is saved") {
  std::vector<float> of_one;
  double judged_of_one = 0;
  for (const char* const strategy : {"ddp", "fsdp"}) {
    for (const int world : {1, 2}) {
      CAPTURE(strategy);
      CAPTURE(world);
      const Folder folder;
      comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        auto arguments = schedule_free();
        arguments.strategy = strategy;
        arguments.per_device_train_batch_size = 4 / world;
        arguments.output_dir = folder.path;
        arguments.eval_strategy = arguments.save_strategy = "steps";
        arguments.save_steps = arguments.logging_steps = 2;
        arguments.load_best_model_at_end = true;
        const auto set = std::make_shared<Numbered>(24);
        nn::Linear net = small_net();
        launch::Trainer trainer(
            job, net, arguments,
            {.train_dataset = set, .eval_dataset = set, .forward = forward_with(0)});
        trainer.train();
        const double best = *trainer.state().best_metric;
        const double judged = trainer.evaluate()[0].value;
        // The model of the best checkpoint is at the point that its evaluation was of.
        CHECK(judged == doctest::Approx(best).epsilon(1e-6));
        trainer.save_model((folder.path / "model").string());
        if (!job.is_main()) return;
        nn::Linear saved = small_net();
        nn::load_model(folder.path / "model", saved);
        CHECK(weights_of(saved) == weights_of(net));
        if (of_one.empty()) {
          of_one = weights_of(net);
          judged_of_one = judged;
        }
        CHECK(farthest(weights_of(net), of_one) < 1e-5);
        CHECK(judged == doctest::Approx(judged_of_one).epsilon(1e-5));
      });
    }
  }
}

TEST_CASE("schedule-free: a run that goes on is the one that was not interrupted, bit for bit") {
  for (const char* const strategy : {"ddp", "fsdp"}) {
    CAPTURE(strategy);
    const Folder folder;
    const auto run = [&](const std::string& resume, std::int64_t stop, const Folder& to) {
      std::vector<float> weights;
      try {
        comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
          launch::Job job(group);
          auto arguments = schedule_free();
          arguments.strategy = strategy;
          arguments.output_dir = to.path;
          arguments.save_strategy = "steps";
          arguments.save_steps = 2;
          arguments.num_train_epochs = 2;
          arguments.resume_from_checkpoint = resume;
          nn::Linear net = small_net();
          launch::Trainer trainer(job, net, arguments,
                                  {.train_dataset = std::make_shared<Numbered>(24),
                                   .forward = forward_with(0.3),
                                   .callbacks = {std::make_shared<AtStep>([&](std::int64_t step) {
                                     if (step == stop) throw Error("stopped");
                                   })}});
          trainer.train();
          if (job.is_main()) weights = weights_of(net);
        });
      } catch (const Error&) {
      }
      return weights;
    };
    const Folder other;
    const auto whole = run("", -1, other);
    CHECK(run("", 5, folder).empty());
    CHECK(run("true", -1, folder) == whole);
    CHECK(!whole.empty());
  }
}

TEST_CASE("save_strategy best saves after what is the best so far, and after nothing else") {
  for (const bool by_epoch : {false, true}) {
    CAPTURE(by_epoch);
    const Folder folder;
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto arguments = quiet();
      arguments.output_dir = folder.path;
      arguments.save_strategy = "best";
      arguments.eval_strategy = by_epoch ? "epoch" : "steps";
      arguments.eval_steps = 1;
      arguments.num_train_epochs = 3;
      // What is judged of evaluation k, from 1: a loss that is the best at 1, 3 and 4.
      const std::vector<double> losses{3, 4, 2, 1, 1.5, 9};
      int judged = 0;
      launch::Trainer trainer(
          job, small_net(), arguments,
          {.train_dataset = std::make_shared<Numbered>(by_epoch ? 8 : 16),
           .eval_dataset = std::make_shared<Numbered>(2),
           .compute_loss = [&](nn::Module& net, const data::Batch& batch) -> launch::LossAndOutput {
             const Tensor output = net(batch.x);
             if (net.training()) return {cross_entropy(output, batch.y), output};
             return {full({}, losses.at(static_cast<std::size_t>(judged++))), output};
           }});
      trainer.train();
      CHECK(judged == (by_epoch ? 3 : 6));
      CHECK(trainer.state().best_global_step == (by_epoch ? 3 : 4));
    });
    std::vector<std::string> saved;
    for (const auto& each : std::filesystem::directory_iterator(folder.path)) {
      const std::string name = each.path().filename().string();
      if (name.ends_with(".safetensors")) saved.push_back(name.substr(name.rfind("-step-")));
    }
    std::sort(saved.begin(), saved.end());
    std::vector<std::string> wanted{"-step-1.safetensors", "-step-3.safetensors"};
    if (!by_epoch) wanted.emplace_back("-step-4.safetensors");
    CHECK(saved == wanted);
  }
}

TEST_CASE("the best is one that a checkpoint can have: not before the first step, nor after all") {
  for (const char* const save : {"best", "steps"}) {
    CAPTURE(save);
    const Folder folder;
    launch::Job job;
    auto arguments = quiet();
    arguments.output_dir = folder.path;
    arguments.save_strategy = save;
    arguments.eval_strategy = "steps";
    arguments.save_steps = arguments.eval_steps.emplace(1);
    arguments.eval_on_start = true;
    arguments.load_best_model_at_end = true;
    std::vector<std::vector<float>> weights;
    nn::Linear net = small_net();
    // Of the model as it was made, and after each of three steps; again, when all is over.
    const std::vector<double> losses{1, 5, 3, 4, 3};
    int judged = 0;
    launch::Trainer trainer(
        job, net, arguments,
        {.train_dataset = std::make_shared<Numbered>(12),
         .eval_dataset = std::make_shared<Numbered>(2),
         .compute_loss = [&](nn::Module& model, const data::Batch& batch) -> launch::LossAndOutput {
           const Tensor output = model(batch.x);
           if (model.training()) return {cross_entropy(output, batch.y), output};
           return {full({}, losses.at(static_cast<std::size_t>(judged++))), output};
         },
         .callbacks = {
             std::make_shared<AtStep>([&](std::int64_t) { weights.push_back(weights_of(net)); })}});
    trainer.train();
    REQUIRE(weights.size() == 3);
    CHECK(weights_of(net) == weights[1]);
    trainer.evaluate();
    CHECK(judged == 5);
    CHECK(*trainer.state().best_metric == 3);
    CHECK(trainer.state().best_global_step == 2);
  }
}

TEST_CASE("a model that cannot be saved is an Error on all ranks, which go on") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::Trainer trainer(job, small_net(), quiet(),
                            {.train_dataset = std::make_shared<Numbered>(8)});
    testing::check_has(testing::error_of([&] { trainer.save_model("/proc/none/model"); }), "none");
    CHECK(trainer.train().global_step == 1);
  });
}

TEST_CASE("schedule-free in a Learner: fits, validations and the best model") {
  const Folder folder;
  launch::Job job;
  const auto set = std::make_shared<Numbered>(24);
  data::DataLoader training(set, {.batch_size = 4}), validation(set, {.batch_size = 24});
  nn::Linear net = small_net();
  const auto best = std::make_shared<launch::SaveModelCallback>((folder.path / "best").string());
  launch::Learner learner(
      job, {&training, &validation}, net,
      {.loss = nn::CrossEntropyLoss{},
       .forward = forward_with(0),
       .optimizer = launch::optimizer_of<nn::AdamWScheduleFree>(nn::AdamWScheduleFreeOptions{})});
  learner.fit(3, 0.05, {.cbs = {best}});
  CHECK(learner.validate()[0].value == doctest::Approx(best->best()).epsilon(1e-6));
  const auto after = weights_of(net);
  learner.lr_find();
  CHECK(weights_of(net) == after);
  learner.save(folder.path / "state");
  learner.fit(1, 0.05);
  CHECK(weights_of(net) != after);
  learner.load(folder.path / "state");
  CHECK(weights_of(net) == after);
}

TEST_CASE("schedule-free: an optimizer that is shared out cannot go from one point to another") {
  for (const char* const strategy : {"zero1", "zero2"}) {
    std::string words;
    try {
      comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        auto arguments = schedule_free();
        arguments.strategy = strategy;
        launch::Trainer trainer(
            job, small_net(), arguments,
            {.train_dataset = std::make_shared<Numbered>(8), .forward = forward_with(0)});
        trainer.train();
      });
    } catch (const Error& error) {
      words = error.what();
    }
    testing::check_has(words, "AdamWScheduleFree");
    testing::check_has(words, "take DistributedDataParallel or FullyShardedDataParallel");
  }
}
