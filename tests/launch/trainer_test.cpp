// SPDX-License-Identifier: Apache-2.0
// The Trainer: its banner, logs and events, its losses and optimizer, and that it trains as the
// other faces of the loop do, on any number of ranks.
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
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::Folder;
using testing::forward_with;
using testing::logged;
using testing::Names;
using testing::Numbered;
using testing::quiet;
using testing::small_net;

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
