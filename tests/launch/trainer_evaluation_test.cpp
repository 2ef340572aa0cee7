// SPDX-License-Identifier: Apache-2.0
// What the Trainer finds and keeps: evaluations, predictions, the best model, logs; and what it
// refuses.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/text/text_set.h>
#include <peal/launch/training/trainer/trainer_steps.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "rank_errors.h"
#include "trainer_program.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::error_of;
using testing::Folder;
using testing::forward_with;
using testing::logged;
using testing::Names;
using testing::Numbered;
using testing::quiet;
using testing::small_net;
using testing::weights_of;

TEST_CASE("evaluations and predictions have each sample once, in order") {
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      launch::Trainer trainer(job, small_net(), quiet(),
                              {.compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                               .compute_metrics_of_all = [](const launch::PredictionOutput& all) {
                                 const Tensor right = argmax(all.predictions, 1) == all.label_ids;
                                 return std::vector<launch::Value>{
                                     {"again", mean(cast(right, DType::f64)).item<double>()},
                                     {"samples", right.numel()}};
                               }});
      for (const std::int64_t size : {101, 40, 7, 1}) {
        CAPTURE(size);
        const auto set = std::make_shared<Numbered>(size);
        const launch::PredictionOutput found = trainer.predict(set);
        REQUIRE(found.label_ids.numel() == size);
        REQUIRE(found.predictions.size(0) == size);
        const auto labels = found.label_ids.to_vector<std::int64_t>();
        for (std::int64_t i = 0; i < size; ++i) CHECK(labels[static_cast<std::size_t>(i)] == i % 3);
        const NoGrad guard;
        std::vector<std::int64_t> all(static_cast<std::size_t>(size));
        for (std::int64_t i = 0; i < size; ++i) all[static_cast<std::size_t>(i)] = i;
        nn::Linear net = small_net();
        const data::Batch whole = set->get(all);
        const Tensor wanted = net(whole.x);
        CHECK(max(abs(found.predictions - wanted)).item<double>() < 1e-4);
        CHECK(found.metrics[0].name == "test_loss");
        CHECK(found.metrics[0].value ==
              doctest::Approx(cross_entropy(wanted, whole.y).item<double>()).epsilon(1e-5));
        const auto judged = trainer.evaluate(set);
        CHECK(judged[1].name == "eval_accuracy");
        CHECK(judged[2].name == "eval_again");
        CHECK(judged[2].value == doctest::Approx(judged[1].value));
        CHECK(judged[3] == launch::Value("eval_samples", size));
      }
    });
  }
}

TEST_CASE("texts that a batch puts in another order are predicted in theirs") {
  std::vector<data::TokenIds> texts;
  std::vector<std::int64_t> classes;
  std::vector<float> numbers;
  for (std::int64_t k = 0; k < 7; ++k) {
    texts.emplace_back(static_cast<std::size_t>(k % 2 == 0 ? 2 + k : 1), 10 + k);
    classes.push_back(k % 3);
    numbers.push_back(static_cast<float>(10 + k));
  }
  const auto set = std::make_shared<data::TextSet>(texts, classes, data::pad_parts(2));
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto arguments = quiet();
      arguments.per_device_eval_batch_size = 3;
      launch::TrainerOptions options;
      // The largest token of a text says which one it is.
      options.forward = [](nn::Module&, const data::Batch& batch) {
        const Tensor largest = cast(amax(batch.x, {1}), DType::f32);
        return stack({largest, largest * 0.0, largest * 0.0}, 1);
      };
      launch::Trainer trainer(job, small_net(), arguments, options);
      const auto found = trainer.predict(set);
      CHECK(select(found.predictions, 1, 0).to_vector<float>() == numbers);
      CHECK(found.label_ids.to_vector<std::int64_t>() == classes);
    });
  }
}

TEST_CASE("a set without labels is predicted from, and no metric asks for them") {
  struct Unlabelled : Numbered {
    using Numbered::Numbered;
    data::Batch get(std::span<const std::int64_t> indices) const override {
      return {Numbered::get(indices).x, {}};
    }
  };
  for (const int world : {1, 2}) {
    comm::run_ranks(world, [](const comm::ProcessGroup& group) {
      launch::Job job(group);
      int asked = 0;
      launch::Trainer trainer(job, small_net(), quiet(),
                              {.compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                               .compute_metrics_of_all = [&](const launch::PredictionOutput&) {
                                 ++asked;
                                 return std::vector<launch::Value>{};
                               }});
      const launch::PredictionOutput found = trainer.predict(std::make_shared<Unlabelled>(7));
      CHECK(found.predictions.size(0) == 7);
      CHECK(!found.label_ids.defined());
      CHECK(found.metrics[0].name == "test_runtime");
      CHECK(asked == 0);
      trainer.evaluate(std::make_shared<Numbered>(7));
      CHECK(asked == 1);
    });
  }
}

TEST_CASE("logs as lines of files, and the model by itself") {
  const Folder folder;
  launch::Job job;
  auto arguments = quiet();
  arguments.output_dir = folder.path / "run";
  arguments.logging_steps = 2;
  arguments.report_to = "all";
  nn::Linear net = small_net();
  launch::Trainer trainer(job, net, arguments, {.train_dataset = std::make_shared<Numbered>(16)});
  trainer.train();
  const std::string lines = testing::content_of(folder.path / "run/log.jsonl");
  CHECK(lines.starts_with("{\"step\":2,\"loss\":"));
  check_has(lines, "\"learning_rate\":0.05,\"epoch\":0.5}\n{\"step\":4,\"loss\"");
  CHECK(testing::content_of(folder.path / "run/log.csv")
            .starts_with("step,loss,grad_norm,learning_rate,epoch,train_runtime,"));
  // An evaluation of another program goes behind them.
  arguments.report_to = "jsonl";
  launch::Trainer judge(job, net, arguments, {.eval_dataset = std::make_shared<Numbered>(4)});
  judge.evaluate();
  const std::string more = testing::content_of(folder.path / "run/log.jsonl");
  CHECK(more.starts_with(lines + "{\"step\":0,\"eval_loss\":"));
  arguments.run_name = "a/b";
  check_has(error_of([&] { launch::Trainer(job, net, arguments, {}); }),
            "expected a name without /, got 'a/b'");
  arguments.run_name = "log";
  trainer.save_model();
  nn::Linear other = small_net();
  nn::load_model(folder.path / "run/model.safetensors", other);
  CHECK(weights_of(other) == weights_of(net));
  CHECK(weights_of(small_net()) != weights_of(net));
}

TEST_CASE("a log that rank 0 cannot write is an error on all ranks") {
  const Folder folder;
  std::filesystem::create_directories(folder.path / "run/log.jsonl");
  const auto told = [&](const std::string& part, const std::function<void(launch::Job&)>& f) {
    for (const std::string& error : testing::errors_of(2, [&](launch::Job& job) {
           f(job);
           job.group().barrier().wait();  // what the program does next
         })) {
      check_has(error, "[trainer] rank 0: a log could not be ");
      check_has(error, part);
    }
  };
  told("written (report_to jsonl) in " + (folder.path / "run").string() + ": ",
       [&](launch::Job& job) {
         auto arguments = quiet();
         arguments.output_dir = folder.path / "run";
         arguments.report_to = "jsonl";
         launch::Trainer(job, small_net(), arguments,
                         {.eval_dataset = std::make_shared<Numbered>(4)})
             .evaluate();
       });
  // The last line of a training, when its steps are over.
  told("told: no terminal", [&](launch::Job& job) {
    const auto tell = [](const std::string& line) {
      PEAL_CHECK(!testing::contains(line, "train_runtime"), "no terminal");
    };
    launch::Trainer(job, small_net(), quiet(),
                    {.train_dataset = std::make_shared<Numbered>(16), .tell = tell})
        .train();
  });
  // The first line of an evaluation, while the others wait to gather its results.
  told("told: no terminal", [&](launch::Job& job) {
    launch::Trainer(job, small_net(), quiet(),
                    {.eval_dataset = std::make_shared<Numbered>(4),
                     .tell = [](const std::string&) { PEAL_CHECK(false, "no terminal"); }})
        .evaluate();
  });
}

TEST_CASE("a profile is of the steps alone, and an exception ends it") {
  const Folder folder;
  launch::Job job;
  auto arguments = quiet();
  arguments.eval_strategy = "steps";
  arguments.profile = true;
  arguments.trace = folder.path / "trace.json";
  std::string told;
  int at_step = 0;
  launch::Trainer trainer(
      job, small_net(), arguments,
      {.train_dataset = std::make_shared<Numbered>(16),
       .eval_dataset = std::make_shared<Numbered>(5),
       .callbacks = {std::make_shared<Names>(
           [&](const std::string& name, launch::Trainer& t, launch::TrainerControl&) {
             if (name == "on_step_end") CHECK(context().trace);
             if (name == "on_evaluate") CHECK(context().trace);  // again
             if (name == "on_step_end" && t.state().global_step == at_step) fail("at a step");
           })},
       .tell = [&](const std::string& line) { told += line; }});
  trainer.train();
  CHECK(!context().trace);
  check_has(told, "a step, rank 0:");
  CHECK(std::filesystem::exists(folder.path / "trace.json"));
  at_step = 2;
  CHECK(error_of([&] { trainer.train(); }) == "at a step");
  CHECK(!context().trace);
}

TEST_CASE("the best model is back at the end, and its checkpoint stays beside the limit") {
  const Folder folder;
  launch::Job job;
  auto arguments = quiet();
  arguments.output_dir = folder.path;
  arguments.eval_strategy = arguments.save_strategy = "steps";
  arguments.save_steps = 1;
  arguments.save_total_limit = 1;
  arguments.max_steps = 5;
  arguments.load_best_model_at_end = true;
  arguments.metric_for_best_model = "accuracy";
  arguments.greater_is_better = false;  // the worst, which is not the last one
  arguments.learning_rate = 0.5;
  std::vector<std::vector<float>> weights;
  nn::Linear net = small_net();
  launch::Trainer trainer(
      job, net, arguments,
      {.train_dataset = std::make_shared<Numbered>(12),
       .eval_dataset = std::make_shared<Numbered>(6),
       .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
       .callbacks = {std::make_shared<Names>(
           [&](const std::string& name, launch::Trainer&, launch::TrainerControl&) {
             if (name == "on_step_end") weights.push_back(weights_of(net));
           })}});
  trainer.train();
  const std::vector<double> found = logged(trainer.state(), "eval_accuracy");
  REQUIRE(found.size() == 5);
  const auto best = static_cast<std::size_t>(trainer.state().best_global_step);
  CHECK(*trainer.state().best_metric == found[best - 1]);
  for (const double each : found) CHECK(each >= found[best - 1]);
  CHECK(weights_of(net) == weights[best - 1]);
  CHECK(!testing::path_ending(folder.path, concat("-step-", best, ".safetensors")).empty());
  CHECK(!testing::path_ending(folder.path, "-step-5.safetensors").empty());
}

TEST_CASE("early stopping, and a metric that there is not") {
  launch::Job job;
  auto arguments = quiet();
  arguments.eval_strategy = "steps";
  arguments.eval_steps = 1;
  arguments.metric_for_best_model = "loss";
  arguments.learning_rate = 0;
  arguments.num_train_epochs = 10;
  launch::TrainerOptions options{.train_dataset = std::make_shared<Numbered>(12),
                                 .eval_dataset = std::make_shared<Numbered>(6),
                                 .callbacks = {std::make_shared<launch::EarlyStopping>(3)}};
  launch::Trainer stopped(job, small_net(), arguments, options);
  CHECK(stopped.train().global_step == 4);
  arguments.metric_for_best_model = "acuracy";
  launch::Trainer lost(job, small_net(), arguments, options);
  check_has(error_of([&] { lost.train(); }), "there is no eval_acuracy; an evaluation finds");
}

TEST_CASE("every strategy evaluates, keeps the best and saves the model as one rank does") {
  std::vector<double> of_one;
  for (const char* strategy : {"none", "ddp", "zero1", "zero2", "fsdp"}) {
    const int world = of_one.empty() ? 1 : 2;
    CAPTURE(strategy);
    const Folder folder;
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto arguments = quiet();
      arguments.per_device_train_batch_size = 4 / world;
      arguments.strategy = strategy;
      arguments.output_dir = folder.path;
      arguments.eval_strategy = arguments.save_strategy = "steps";
      arguments.save_steps = arguments.eval_steps.emplace(1);
      arguments.load_best_model_at_end = true;
      nn::Linear net = small_net();
      launch::Trainer trainer(job, net, arguments,
                              {.train_dataset = std::make_shared<Numbered>(16),
                               .eval_dataset = std::make_shared<Numbered>(5),
                               .forward = forward_with(0)});
      trainer.train();
      trainer.save_model();
      const auto again = trainer.evaluate();
      CHECK(again[0].value == doctest::Approx(*trainer.state().best_metric).epsilon(1e-5));
      const auto found = logged(trainer.state(), "eval_loss");
      if (!job.is_main()) return;
      if (of_one.empty()) of_one = found;
      REQUIRE(found.size() == of_one.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(found[i] == doctest::Approx(of_one[i]).epsilon(1e-5));
      nn::Linear other = small_net();
      nn::load_model(folder.path / "model.safetensors", other);
      CHECK(weights_of(other) == weights_of(net));
    });
  }
}

TEST_CASE("arguments that differ between ranks are an error on all") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto arguments = quiet();
    arguments.max_steps = job.rank() + 1;
    check_has(error_of([&] { launch::Trainer(job, small_net(), arguments, {}); }),
              "\"max_steps\": 2");
    arguments.max_steps = job.rank() - 1;
    check_has(error_of([&] { launch::Trainer(job, small_net(), arguments, {}); }), "rank 1");
    arguments.max_steps = 1;
    launch::TrainerOptions options;
    if (job.is_main()) options.callbacks = {std::make_shared<launch::TrainerCallback>()};
    check_has(error_of([&] { launch::Trainer(job, small_net(), arguments, options); }),
              "callbacks: 1");
  });
}

TEST_CASE("an evaluation by one rank alone is an Error on all, and a save by one is none") {
  const Folder folder;
  const auto begun = std::chrono::steady_clock::now();
  const auto errors = testing::errors_of(2, [&](launch::Job& job) {
    nn::Linear net = small_net();
    launch::Trainer* there = nullptr;
    const auto at_step = [&](std::int64_t step) {
      if (!job.is_main()) return;
      if (step == 1) nn::save_model((folder.path / "model").string(), net);
      if (step == 3) there->evaluate();
    };
    launch::Trainer trainer(job, net, quiet(),
                            {.train_dataset = std::make_shared<Numbered>(64),
                             .eval_dataset = std::make_shared<Numbered>(8),
                             .callbacks = {std::make_shared<testing::AtStep>(at_step)}});
    there = &trainer;
    trainer.train();
  });
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  for (const std::string& error : errors) {
    for (const char* words : {"rank 0", "rank 1", "the validation loader", "trainer's wishes"})
      check_has(error, words);
  }
  nn::Linear saved = small_net();
  nn::load_model((folder.path / "model").string(), saved);
  CHECK(weights_of(saved) != weights_of(small_net()));
}

TEST_CASE("what makes no sense is an error at once") {
  launch::Job job;
  const auto made = [&](launch::TrainingArguments arguments, launch::TrainerOptions options) {
    return error_of([&] { launch::Trainer(job, small_net(), arguments, std::move(options)); });
  };
  auto arguments = quiet();
  arguments.strategy = "zero";
  check_has(made(arguments, {}), "there is no strategy 'zero'");
  for (const auto& [word, instead] : {std::pair("dp", "nn::DataParallel"),
                                      {"pipeline", "nn::Pipe"},
                                      {"tp", "nn::parallelize_module"}}) {
    arguments.strategy = word;
    check_has(made(arguments, {}), instead);
  }
  arguments = quiet();
  arguments.group_by_length = true;
  check_has(made(arguments, {.train_dataset = std::make_shared<Numbered>(3)}), ".lengths");
  arguments = quiet();
  arguments.label_smoothing_factor = 0.1;
  check_has(made(arguments, {.loss = nn::CrossEntropyLoss{}}), "label_smoothing_factor");
  arguments = quiet();
  arguments.gradient_checkpointing = true;
  check_has(made(arguments, {}), ".gradient_checkpointing_enable");
  arguments = quiet();
  arguments.eval_strategy = "epoch";
  check_has(made(arguments, {}), ".eval_dataset");
  launch::Trainer empty(job, small_net(), quiet(), {});
  check_has(error_of([&] { empty.train(); }), ".train_dataset");
  check_has(error_of([&] { empty.evaluate(); }), ".eval_dataset");
}

TEST_CASE(
    "losses of steps that are not logged are added up now and then, and all are in the mean") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::StepLosses losses(job);
    double sum = 0;
    for (int step = 0; step < 2500; ++step) {
      losses.add(Tensor::scalar(step + 2.0 * job.rank(), Device{}), 3);
      losses.end_step();
      sum += step + 1;
    }
    CHECK(losses.steps() == 2500);
    losses.consolidate_state_dict(0);
    const NamedTensors state = losses.state_dict();
    CHECK(state[0].second.size(1) == 1 + 2 * 500);
    launch::StepLosses other(job);
    other.load_state_dict(state);
    for (launch::StepLosses* each : {&losses, &other}) {
      CHECK(each->take() == sum / 2500);
      CHECK(each->steps() == 0);
      CHECK(each->of_all() == sum / 2500);
    }
  });
}
