// SPDX-License-Identifier: Apache-2.0
// The Trainer: its banner, logs and events, evaluations and predictions, and that it trains as the
// other faces of the loop do, on any number of ranks.
#include <peal/autograd/core/context.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/layers/group_norm.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "trainer_program.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::error_of;
using testing::Folder;
using testing::forward_with;
using testing::logged;
using testing::Numbered;
using testing::small_net;
using testing::weights_of;

namespace {

launch::TrainingArguments quiet() {
  return {.per_device_train_batch_size = 4,
          .learning_rate = 0.1,
          .num_train_epochs = 1,
          .logging_steps = 1,
          .save_strategy = "no",
          .disable_tqdm = true};
}

// Calls a function at each event, by name.
struct Names : launch::TrainerCallback {
  using Heard = std::function<void(const char*, launch::Trainer&, launch::TrainerControl&)>;
  explicit Names(Heard f) : heard(std::move(f)) {}
#define HEARD(event)                                                               \
  void event(launch::Trainer& trainer, launch::TrainerControl& control) override { \
    heard(#event, trainer, control);                                               \
  }
  HEARD(on_train_begin)
  HEARD(on_train_end)
  HEARD(on_epoch_begin)
  HEARD(on_epoch_end)
  HEARD(on_step_begin)
  HEARD(on_substep_end)
  HEARD(on_pre_optimizer_step)
  HEARD(on_optimizer_step)
  HEARD(on_step_end)
  HEARD(on_log)
  HEARD(on_evaluate)
  HEARD(on_save)
#undef HEARD
  Heard heard;
};

}  // namespace

TEST_CASE("the banner and the logs are transformers'") {
  launch::Job job;
  std::vector<std::string> told;
  auto arguments = quiet();
  arguments.logging_steps = 2;
  arguments.eval_strategy = "epoch";
  launch::Trainer trainer(job, small_net(), arguments,
                          {.train_dataset = std::make_shared<Numbered>(1010),
                           .eval_dataset = std::make_shared<Numbered>(6),
                           .forward = forward_with(0),
                           .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                           .tell = [&](const std::string& line) { told.push_back(line); }});
  const launch::TrainOutput output = trainer.train();
  CHECK(output.global_step == 253);
  REQUIRE(told.size() > 9);
  CHECK(std::vector(told.begin(), told.begin() + 8) ==
        std::vector<std::string>{
            "***** Running training *****", "  Num examples = 1,010", "  Num Epochs = 1",
            "  Instantaneous batch size per device = 4",
            "  Total train batch size (w. parallel, distributed & accumulation) = 4",
            "  Gradient Accumulation steps = 1", "  Total optimization steps = 253",
            "  Number of trainable parameters = 9"});
  check_has(told[8], "{'loss': ");
  check_has(told[8], ", 'grad_norm': ");
  check_has(told[8], ", 'learning_rate': 0.09920948616600792, 'epoch': 0.01}");
  check_has(told.back(), "{'train_runtime': ");
  check_has(told.back(), ", 'train_loss': ");
  CHECK(told[told.size() - 5] == "***** Running Evaluation *****");
  CHECK(told[told.size() - 4] == "  Num examples = 6");
  check_has(told[told.size() - 2], "{'eval_loss': ");
  check_has(told[told.size() - 2], "'eval_accuracy': ");
  check_has(told[told.size() - 2], "'epoch': 1.0}");
  CHECK(logged(trainer.state(), "loss").size() == 126);
  CHECK(logged(trainer.state(), "learning_rate")[99] == doctest::Approx(0.1 * 53 / 253));
}

TEST_CASE("steps an epoch are those of the ranks: 938, 469 and 235 of 60000 samples by 64") {
  for (const auto& [world, steps] : {std::pair{1, 938}, {2, 469}, {4, 235}}) {
    comm::run_ranks(world, [&, steps = steps](const comm::ProcessGroup& group) {
      launch::Job job(group);
      auto arguments = quiet();
      arguments.per_device_train_batch_size = 64;
      std::string told;
      struct Stop : launch::TrainerCallback {
        void on_step_end(launch::Trainer&, launch::TrainerControl& control) override {
          control.should_training_stop = true;
        }
      };
      launch::Trainer trainer(job, small_net(), arguments,
                              {.train_dataset = std::make_shared<Numbered>(60000),
                               .callbacks = {std::make_shared<Stop>()},
                               .tell = [&](const std::string& line) { told += line + "\n"; }});
      CHECK(trainer.train().global_step == 1);
      CHECK(trainer.state().max_steps == steps);
      if (job.is_main())
        check_has(told, concat("  Total optimization steps = ", steps, "\n"));
      else
        CHECK(told.empty());
    });
  }
}

TEST_CASE("events come in transformers' order") {
  const Folder folder;
  launch::Job job;
  auto arguments = quiet();
  arguments.output_dir = folder.path;
  arguments.gradient_accumulation_steps = 2;
  arguments.logging_steps = 2;
  arguments.eval_strategy = arguments.save_strategy = "epoch";
  std::string seen;
  launch::Trainer trainer(job, small_net(), arguments,
                          {.train_dataset = std::make_shared<Numbered>(12),
                           .eval_dataset = std::make_shared<Numbered>(5),
                           .callbacks = {std::make_shared<Names>(
                               [&](const char* name, launch::Trainer&, launch::TrainerControl&) {
                                 seen += std::string(name).substr(3) + ' ';
                               })}});
  trainer.train();
  CHECK(seen ==
        "train_begin epoch_begin step_begin substep_end pre_optimizer_step optimizer_step step_end "
        "step_begin pre_optimizer_step optimizer_step step_end log epoch_end log evaluate save "
        "log train_end ");
}

TEST_CASE("the three faces of the loop have the same losses, step by step") {
  constexpr std::int64_t samples = 24, batch = 12;
  const nn::SGDOptions sgd{.lr = 0.1};
  std::vector<double> of_one;
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      const auto set = std::make_shared<Numbered>(samples);
      auto arguments = quiet();
      arguments.per_device_train_batch_size = batch / world;
      arguments.optim = "sgd";
      arguments.lr_scheduler_type = "constant";
      arguments.max_grad_norm = 0;
      arguments.num_train_epochs = 3;
      launch::Trainer trainer(job, small_net(), arguments,
                              {.train_dataset = set, .forward = forward_with(0)});
      trainer.train();
      const std::vector<double> losses = logged(trainer.state(), "loss");

      data::DataLoader shard(
          set, {.batch_size = batch / world, .shuffle = true, .shard = job.place(), .seed = 42});
      launch::Learner learner(job, {&shard}, small_net(),
                              {.loss = nn::CrossEntropyLoss{},
                               .forward = forward_with(0),
                               .optimizer = launch::optimizer_of<nn::SGD>(sgd)});
      learner.fit(3, 0.1);

      launch::Accelerator accelerator(job);
      nn::Linear net = small_net();
      nn::SGD plain(net.named_parameters(), sgd);
      data::DataLoader loader(set, {.batch_size = batch / world, .shuffle = true, .seed = 42});
      auto [model, optimizer, training] = accelerator.prepare(net, plain, loader);
      std::vector<double> own;
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (const data::Batch& each : training) {
          const Tensor loss = cross_entropy(model(each.x / 16.0), each.y);
          own.push_back(accelerator.reduce(loss.detach(), comm::ReduceOp::avg).item<double>());
          accelerator.backward(loss);
          optimizer.step();
          optimizer.zero_grad();
        }
      }
      if (!job.is_main()) return;
      REQUIRE(losses.size() == 6);
      REQUIRE(own.size() == 6);
      REQUIRE(learner.recorder().batch_losses.size() == 6);
      if (world == 1) of_one = losses;
      for (std::size_t i = 0; i < 6; ++i) {
        CHECK(losses[i] == doctest::Approx(learner.recorder().batch_losses[i]).epsilon(1e-6));
        CHECK(losses[i] == doctest::Approx(own[i]).epsilon(1e-6));
        CHECK(losses[i] == doctest::Approx(of_one[i]).epsilon(1e-6));
      }
    });
  }
}

TEST_CASE("evaluations and predictions have each sample once, in order") {
  for (const int world : {1, 2, 3}) {
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      launch::Job job(group);
      launch::Trainer trainer(
          job, small_net(), quiet(),
          {.compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}}});
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
        CHECK(trainer.evaluate(set)[1].name == "eval_accuracy");
      }
    });
  }
}

TEST_CASE("logs as lines of JSON, and the model by itself") {
  const Folder folder;
  launch::Job job;
  auto arguments = quiet();
  arguments.output_dir = folder.path / "run";
  arguments.logging_steps = 2;
  arguments.report_to = "json";
  arguments.run_name = "first";
  nn::Linear net = small_net();
  launch::Trainer trainer(job, net, arguments, {.train_dataset = std::make_shared<Numbered>(16)});
  trainer.train();
  const std::string lines = testing::content_of(folder.path / "run/log.jsonl");
  CHECK(lines.starts_with("{\"loss\":"));
  check_has(lines, "\"learning_rate\":0.05,\"epoch\":0.5,\"step\":2,\"run\":\"first\"}\n{\"loss\"");
  trainer.save_model();
  nn::Linear other = small_net();
  nn::load_model(folder.path / "run/model.safetensors", other);
  CHECK(weights_of(other) == weights_of(net));
  CHECK(weights_of(small_net()) != weights_of(net));
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

TEST_CASE("norms and biases do not decay, and an optimizer of one's own keeps its decay") {
  launch::Job job;
  auto arguments = quiet();
  arguments.max_steps = 1;
  struct Normed : nn::Module {
    nn::Linear first = add("first", nn::Linear(2, 3));
    nn::RMSNorm norm = add("norm", nn::RMSNorm({3}));
    Tensor forward(const Tensor& x) override { return norm(first(x)); }
  };
  launch::TrainerOptions options{.train_dataset = std::make_shared<Numbered>(4)};
  const auto decays = [&] {
    launch::Trainer trainer(job, Normed(), arguments, options);
    trainer.train();
    std::vector<double> found;
    for (std::size_t g = 0; g < trainer.optimizer->group_count(); ++g) {
      found.push_back(trainer.optimizer->setting("weight_decay", g));
    }
    // The first weight, its bias and the norm's: the last two stand in the second group.
    const auto& all = trainer.optimizer->parameters();
    REQUIRE(all.size() == 3);
    CHECK(all[0].dim() == 2);
    return found;
  };
  arguments.weight_decay = 0.5;
  CHECK(decays() == std::vector<double>{0.5, 0.0});
  arguments.weight_decay = 0;
  options.optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{.weight_decay = 0.25});
  CHECK(decays() == std::vector<double>{0.25, 0.25});
}

TEST_CASE("a wish of one rank is all ranks'") {
  const Folder folder;
  comm::run_ranks(3, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto arguments = quiet();
    arguments.output_dir = folder.path;
    arguments.logging_strategy = "no";
    arguments.save_strategy = "epoch";
    launch::Trainer trainer(
        job, small_net(), arguments,
        {.train_dataset = std::make_shared<Numbered>(60),
         .eval_dataset = std::make_shared<Numbered>(5),
         .callbacks = {std::make_shared<Names>(
             [&](const std::string& name, launch::Trainer& t, launch::TrainerControl& control) {
               if (name != "on_step_end" || job.rank() != t.state().global_step % 3) return;
               if (t.state().global_step == 1) control.should_log = true;
               if (t.state().global_step == 2) control.should_evaluate = control.should_save = true;
               if (t.state().global_step == 4) control.should_training_stop = true;
             })}});
    CHECK(trainer.train().global_step == 4);
    CHECK(logged(trainer.state(), "loss").size() == 1);
    CHECK(logged(trainer.state(), "eval_loss").size() == 1);
  });
  CHECK(!testing::path_ending(folder.path, "-step-2.safetensors").empty());
}

TEST_CASE("a loss of one's own, smoothed labels, and accumulated batches of unequal sizes") {
  launch::Job job;
  const auto set = std::make_shared<Numbered>(10);
  auto arguments = quiet();
  arguments.gradient_accumulation_steps = 4;
  arguments.learning_rate = 0;
  arguments.label_smoothing_factor = 0.25;
  launch::Trainer smooth(job, small_net(), arguments,
                         {.train_dataset = set, .forward = forward_with(0)});
  CHECK(smooth.train().global_step == 1);
  std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const data::Batch whole = set->get(all);
  nn::Linear net = small_net();
  const Tensor output = net(whole.x / 16.0);
  const Tensor own = mean(neg(log_softmax(output)));  // of all classes
  const double wanted =
      0.75 * cross_entropy(output, whole.y).item<double>() + 0.25 * own.item<double>();
  CHECK(logged(smooth.state(), "loss")[0] == doctest::Approx(wanted).epsilon(1e-6));

  arguments.label_smoothing_factor = 0;
  launch::Trainer computed(
      job, small_net(), arguments,
      {.train_dataset = set,
       .eval_dataset = set,
       .compute_loss = [](nn::Module& model, const data::Batch& batch) -> launch::LossAndOutput {
         const Tensor found = model(batch.x);
         return {mean(found * found), found};
       }});
  computed.train();
  const Tensor squares = net(whole.x);
  CHECK(logged(computed.state(), "loss")[0] ==
        doctest::Approx(mean(squares * squares).item<double>()).epsilon(1e-6));
  CHECK(computed.evaluate()[0].value ==
        doctest::Approx(mean(squares * squares).item<double>()).epsilon(1e-6));
}

TEST_CASE("losses count by their labels, in whichever batches and ranks these are") {
  // Samples of 99 labels, of which some are not there.
  struct Labels : data::Dataset {
    explicit Labels(std::vector<std::int64_t> c) : counts(std::move(c)) {}
    std::int64_t size() const override { return std::ssize(counts); }
    data::Batch get(std::span<const std::int64_t> indices) const override {
      std::vector<std::int64_t> y;
      for (const std::int64_t index : indices) {
        for (std::int64_t i = 0; i < 99; ++i)
          y.push_back(i < counts[static_cast<std::size_t>(index)] ? 0 : -100);
      }
      const auto n = std::ssize(indices);
      return {ones({n, 1}), Tensor::from(y, {n, 99}, Device{})};
    }
    std::vector<std::int64_t> counts;
  };
  for (const auto& [world, accumulated] : {std::pair{1, 2}, {2, 1}}) {
    for (const auto& [counts, wanted] :
         {std::pair{std::vector<std::int64_t>{1, 99}, 1.03}, {{0, 99}, 1.0}}) {
      CAPTURE(world);
      CAPTURE(wanted);
      comm::run_ranks(world, [&, counts = counts, wanted = wanted,
                              accumulated = accumulated](const comm::ProcessGroup& group) {
        launch::Job job(group);
        auto arguments = quiet();
        arguments.per_device_train_batch_size = arguments.per_device_eval_batch_size = 1;
        arguments.gradient_accumulation_steps = accumulated;
        arguments.learning_rate = 1;
        arguments.lr_scheduler_type = "constant";
        arguments.max_grad_norm = 0;
        arguments.optim = "sgd";
        nn::Linear net(Tensor::from(std::vector<float>{1}, {1, 1}));
        launch::Trainer trainer(job, net, arguments,
                                {.train_dataset = std::make_shared<Labels>(counts),
                                 .loss = [](const Tensor& output, const Tensor& y) {
                                   const double here =
                                       sum(cast(y != -100, DType::f64)).item<double>();
                                   return sum(output) * (here == 1 ? 4.0 : here / here);
                                 }});
        trainer.train();
        CHECK(logged(trainer.state(), "loss").at(0) == doctest::Approx(wanted));
        CHECK(net.weight.detach().item<float>() == doctest::Approx(1 - wanted));
        CHECK(trainer.evaluate(std::make_shared<Labels>(counts))[0].value ==
              doctest::Approx(wanted * (1 - wanted)));
      });
    }
  }
}

TEST_CASE("fp16: an update whose gradients are not finite counts, and the schedule stays") {
  launch::Job job;
  auto arguments = quiet();
  arguments.fp16 = true;
  arguments.num_train_epochs = 2;
  int steps = 0;
  launch::Trainer trainer(
      job, small_net(), arguments,
      {.train_dataset = std::make_shared<Numbered>(12),
       .loss =
           [&](const Tensor& output, const Tensor& y) {
             const Tensor loss = cross_entropy(output, y);
             return ++steps == 2 ? loss * std::numeric_limits<double>::infinity() : loss;
           },
       .forward = forward_with(0)});
  CHECK(trainer.train().global_step == 6);
  CHECK(trainer.lr_scheduler()->steps() == 5);
  CHECK(std::isinf(logged(trainer.state(), "loss")[1]));
  CHECK(std::isfinite(logged(trainer.state(), "loss")[5]));
}

TEST_CASE("batches of like length, each sample once") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    launch::Job job(group);
    auto arguments = quiet();
    arguments.group_by_length = true;
    static testing::SeenSamples seen;
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < 16; ++i) lengths.push_back(i);
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(16),
                             .forward = forward_with(0, &seen),
                             .lengths = lengths});
    trainer.train();
    group.barrier().wait();
    CHECK(seen.all.size() == 16);
    CHECK(std::set<std::int64_t>(seen.all.begin(), seen.all.end()).size() == 16);
  });
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
  });
}

TEST_CASE("what makes no sense is an error at once") {
  launch::Job job;
  const auto made = [&](launch::TrainingArguments arguments, launch::TrainerOptions options) {
    return error_of([&] { launch::Trainer(job, small_net(), arguments, std::move(options)); });
  };
  auto arguments = quiet();
  arguments.strategy = "zero";
  check_has(made(arguments, {}), "there is no strategy 'zero'");
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
