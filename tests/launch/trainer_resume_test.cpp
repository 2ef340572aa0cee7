// SPDX-License-Identifier: Apache-2.0
// What the Trainer goes on with where it was stopped: to the same last bit in as many ranks, and in
// another world with each sample once; and what is left after things that end a training.
#include <peal/comm/start/threads.h>
#include <peal/launch/terminated.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "trainer_program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::AtStep;
using testing::check_has;
using testing::error_of;
using testing::Folder;
using testing::forward_with;
using testing::logged;
using testing::Numbered;
using testing::path_ending;
using testing::Run;
using testing::run;
using testing::saving;
using testing::SeenSamples;
using testing::small_net;
using testing::weights_of;

TEST_CASE("from each checkpoint on, a run is the one that was not interrupted, bit for bit") {
  // Batches an epoch, and of one update: the last of an epoch is of fewer.
  for (const auto& [world, batches, accumulated] :
       {std::tuple{1, 5, 2}, {1, 3, 1}, {2, 5, 2}, {3, 2, 3}}) {
    const Folder folder;
    auto arguments = saving(folder.path);
    arguments.gradient_accumulation_steps = accumulated;
    arguments.num_train_epochs = 3;
    arguments.warmup_steps = 2;
    arguments.fp16 = accumulated == 1;
    const std::int64_t samples = 2 * world * batches;
    SeenSamples all;
    const Run whole = run(world, arguments, samples, &all);
    CHECK(whole.steps == 3 * ((batches + accumulated - 1) / accumulated));
    CHECK(static_cast<std::int64_t>(all.all.size()) == 3 * samples);
    for (std::int64_t step = 1; step < whole.steps; ++step) {
      CAPTURE(step);
      auto again = arguments;
      again.save_strategy = "no";
      again.resume_from_checkpoint = folder.path / concat("checkpoint-", step);
      const Run resumed = run(world, again, samples);
      CHECK(resumed.weights == whole.weights);
      CHECK(resumed.losses == whole.losses);
      CHECK(resumed.rates == whole.rates);
      CHECK(resumed.steps == whole.steps);
    }
  }
}

TEST_CASE("with every strategy a run goes on as it was, and all of them end alike") {
  std::vector<float> of_ddp;
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    CAPTURE(strategy);
    const Folder folder;
    auto arguments = saving(folder.path);
    arguments.strategy = strategy;
    arguments.num_train_epochs = 2;
    arguments.weight_decay = 0.1;
    const Run whole = run(2, arguments, 12);
    if (of_ddp.empty()) of_ddp = whole.weights;
    for (std::size_t i = 0; i < of_ddp.size(); ++i)
      CHECK(whole.weights[i] == doctest::Approx(of_ddp[i]).epsilon(1e-5));
    for (const int step : {2, 3}) {
      auto again = arguments;
      again.save_strategy = "no";
      again.resume_from_checkpoint = folder.path / concat("checkpoint-", step);
      const Run resumed = run(2, again, 12);
      CHECK(resumed.weights == whole.weights);
      CHECK(resumed.losses == whole.losses);
    }
    // What lies with all ranks is saved as one of a rank, which another strategy takes up.
    auto other = arguments;
    other.save_strategy = "no";
    other.strategy = std::string(strategy) == "ddp" ? "zero1" : "ddp";
    other.resume_from_checkpoint = folder.path / "checkpoint-3";
    const Run taken_up = run(2, other, 12);
    for (std::size_t i = 0; i < of_ddp.size(); ++i)
      CHECK(taken_up.weights[i] == doctest::Approx(of_ddp[i]).epsilon(1e-5));
  }
}

TEST_CASE("a checkpoint after an epoch, and one that leaves the rest of an epoch out") {
  for (const auto& [leaves, saves] :
       {std::pair(false, "epoch"), std::pair(true, "epoch"), std::pair(true, "steps")}) {
    CAPTURE(leaves);
    CAPTURE(saves);
    const Folder folder;
    auto arguments = saving(folder.path);
    arguments.num_train_epochs = 3;
    arguments.save_strategy = saves;
    const auto train = [&, leave = leaves](SeenSamples& seen) {
      std::vector<float> weights;
      comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        nn::Linear net = small_net();
        struct Leave : launch::TrainerCallback {
          void on_step_end(launch::Trainer& trainer, launch::TrainerControl& control) override {
            if (trainer.state().global_step == 2) control.should_epoch_stop = true;
          }
        };
        launch::TrainerOptions options{.train_dataset = std::make_shared<Numbered>(12),
                                       .forward = forward_with(0.3, &seen)};
        if (leave) options.callbacks = {std::make_shared<Leave>()};
        launch::Trainer trainer(job, net, arguments, options);
        trainer.train();
        if (job.is_main()) weights = weights_of(net);
      });
      return weights;
    };
    SeenSamples all, rest;
    const auto whole = train(all);
    CHECK(all.all.size() == (leaves ? 32 : 36));
    const int step = leaves ? 2 : 3;
    arguments.save_strategy = "no";
    arguments.resume_from_checkpoint = folder.path / concat("checkpoint-", step);
    CHECK(train(rest) == whole);
    CHECK(rest.all.size() == 24);
  }
}

TEST_CASE("what comes at an epoch's end comes once, wherever a run was stopped") {
  const Folder folder;
  auto arguments = saving(folder.path);
  arguments.num_train_epochs = 2;
  arguments.logging_strategy = arguments.eval_strategy = "epoch";
  const auto train = [&] {
    std::vector<double> found;
    launch::Job job;
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(6),
                             .eval_dataset = std::make_shared<Numbered>(5),
                             .forward = forward_with(0.3)});
    trainer.train();
    for (const char* name : {"loss", "eval_loss"}) {
      for (const double each : logged(trainer.state(), name)) found.push_back(each);
    }
    return found;
  };
  const auto whole = train();
  CHECK(whole.size() == 4);
  arguments.save_strategy = "no";
  for (int step = 1; step < 6; ++step) {
    arguments.resume_from_checkpoint = folder.path / concat("checkpoint-", step);
    CHECK(train() == whole);
  }
}

TEST_CASE("batches of like length go on as they were") {
  const Folder folder;
  auto arguments = saving(folder.path);
  arguments.group_by_length = true;
  const Run whole = run(2, arguments, 24);
  arguments.resume_from_checkpoint = folder.path / "checkpoint-3";
  arguments.save_strategy = "no";
  CHECK(run(2, arguments, 24).weights == whole.weights);
  // In another world it leaves out what two ranks saw in three steps: 6 batches of the 12.
  const auto rest_of = [&](int world) {
    SeenSamples seen;
    run(world, arguments, 24, &seen);
    return seen.all;
  };
  const auto of_two = rest_of(2);
  CHECK(of_two.size() == 12);
  CHECK(rest_of(1) == of_two);
  CHECK(rest_of(3) == of_two);
  check_has(error_of([&] { run(4, arguments, 24); }),
            "with group_by_length 6 batches of its epoch are over, which 4 ranks cannot");
}

TEST_CASE("in another world no sample is lost or seen twice, and the rate goes on where it was") {
  constexpr std::int64_t samples = 20;
  const Folder folder;
  SeenSamples before;
  // Stops by an exception after two of five updates.
  const auto stop = [](std::int64_t step) {
    if (step == 3) fail("stopped");
  };
  CHECK_THROWS_AS(run(2, saving(folder.path), samples, &before, stop), Error);
  for (const int world : {1, 3}) {
    const Folder copy;
    std::filesystem::copy(folder.path, copy.path);
    auto arguments = saving(copy.path);
    arguments.resume_from_checkpoint = copy.path / "checkpoint-2";
    arguments.logging_steps = 1;
    SeenSamples after;
    const Run resumed = run(world, arguments, samples, &after);
    CHECK(after.all.size() == 12);
    // What the two updates of the checkpoint saw, and no others, are missing.
    for (std::int64_t i = 0; i < samples; ++i) {
      CHECK(after.all.count(i) <= 1);
      CHECK(after.all.count(i) + before.all.count(i) >= 1);
    }
    CHECK(resumed.steps == resumed.max_steps);
    CHECK(resumed.steps == 2 + 12 / (2 * world));
    const double a_step = 0.1 / (world == 1 ? 10 : 4), at = 0.1 * 3 / 5;
    const double from = world == 1 ? at : 0.05;  // 2 of 4 updates there are over
    CHECK(resumed.rates[1] == doctest::Approx(from - a_step));
    CHECK(resumed.rates.back() == doctest::Approx(0).epsilon(1e-12));
  }
}

TEST_CASE("an exception in a callback, or a full disk, costs the steps since the last checkpoint") {
  constexpr std::int64_t samples = 20;
  for (const bool full : {false, true}) {
    const Folder folder, other;
    auto arguments = saving(folder.path);
    arguments.save_steps = 2;
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto old = std::signal(SIGXFSZ, SIG_IGN);
    const auto happens = [&](std::int64_t step) {
      if (step != 4) return;
      if (!full) fail("a callback's own");
      rlimit little = before;
      little.rlim_cur = 64;
      setrlimit(RLIMIT_FSIZE, &little);
    };
    const std::string error = error_of([&] { run(2, arguments, samples, nullptr, happens); });
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old);
    if (full) {
      check_has(error, "checkpoint");
    } else {
      check_has(error, "a callback's own");
    }
    CHECK(path_ending(folder.path, "-step-4.safetensors").empty());
    arguments.resume_from_checkpoint = "true";
    const Run resumed = run(2, arguments, samples);
    arguments.resume_from_checkpoint = "";
    arguments.output_dir = other.path;
    const Run whole = run(2, arguments, samples);
    CHECK(resumed.weights == whole.weights);
    CHECK(resumed.losses == whole.losses);
  }
}

TEST_CASE("Ctrl-C costs the steps since the last checkpoint") {
  const Folder folder, other;
  auto arguments = saving(folder.path);
  arguments.save_steps = 2;
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    const auto happens = [](std::int64_t step) {
      if (step == 5) ::raise(SIGINT);
    };
    run(1, arguments, 20, nullptr, happens);
    ::_exit(3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  arguments.resume_from_checkpoint = "true";
  const Run resumed = run(1, arguments, 20);
  arguments.resume_from_checkpoint = "";
  arguments.output_dir = other.path;
  CHECK(resumed.weights == run(1, arguments, 20).weights);
}

TEST_CASE("SIGTERM at one rank has all save after the same step, and end") {
  const Folder folder, other;
  auto arguments = saving(folder.path);
  arguments.save_steps = 500;
  arguments.num_train_epochs = 2;
  const auto doctests = std::signal(SIGTERM, SIG_DFL);
  const auto happens = [](std::int64_t step) {
    static std::atomic<bool> once{false};
    if (step == 2 && !once.exchange(true)) ::raise(SIGTERM);
  };
  check_has(error_of([&] { run(2, arguments, 20, nullptr, happens); }),
            "[trainer] SIGTERM: ends after step ");
  std::signal(SIGTERM, doctests);
  arguments.resume_from_checkpoint = "true";
  const Run resumed = run(2, arguments, 20);
  arguments.resume_from_checkpoint = "";
  arguments.output_dir = other.path;
  const Run whole = run(2, arguments, 20);
  CHECK(resumed.weights == whole.weights);
  CHECK(resumed.losses == whole.losses);
  // The files are the same bytes.
  const auto last = [](const Folder& of) {
    return testing::content_of(path_ending(of.path, "-step-10.safetensors"));
  };
  CHECK(!last(folder).empty());
  CHECK(last(folder) == last(other));
}

TEST_CASE("SIGTERM at an epoch's last step leaves nothing out of what comes at its end") {
  const Folder folder, other;
  const auto doctests = std::signal(SIGTERM, SIG_DFL);
  const auto train = [&](const Folder& of, bool ends) {
    auto arguments = saving(of.path);
    arguments.num_train_epochs = 2;
    arguments.logging_strategy = arguments.eval_strategy = "epoch";
    if (!ends) arguments.resume_from_checkpoint = "true";
    launch::TrainerOptions options{.train_dataset = std::make_shared<Numbered>(6),
                                   .eval_dataset = std::make_shared<Numbered>(5),
                                   .forward = forward_with(0.3)};
    if (ends) {
      options.callbacks = {std::make_shared<AtStep>([](std::int64_t step) {
        if (step == 2) ::raise(SIGTERM);  // all hear of it at the end of the next
      })};
    }
    launch::Job job;
    launch::Trainer trainer(job, small_net(), arguments, options);
    trainer.train();
    return std::pair(logged(trainer.state(), "loss"), logged(trainer.state(), "eval_loss"));
  };
  check_has(error_of([&] { train(folder, true); }), "[trainer] SIGTERM: ends after step 3");
  std::signal(SIGTERM, doctests);
  const auto resumed = train(folder, false), whole = train(other, false);
  CHECK(whole.second.size() == 2);
  CHECK(resumed == whole);
}

TEST_CASE("early stopping waits as long in a run that goes on") {
  const Folder folder;
  auto arguments = saving(folder.path);
  arguments.num_train_epochs = 10;
  arguments.learning_rate = 0;
  arguments.eval_strategy = "steps";
  arguments.eval_steps = 1;
  arguments.metric_for_best_model = "loss";
  const auto train = [&] {
    launch::Job job;
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(6),
                             .eval_dataset = std::make_shared<Numbered>(5),
                             .callbacks = {std::make_shared<launch::EarlyStopping>(3)}});
    return trainer.train().global_step;
  };
  CHECK(train() == 4);
  arguments.save_strategy = "no";
  arguments.resume_from_checkpoint = folder.path / "checkpoint-3";
  CHECK(train() == 4);
}

TEST_CASE("the model of a checkpoint, without a training") {
  const Folder folder;
  auto arguments = saving(folder.path);
  const Run whole = run(1, arguments, 8);
  arguments.resume_from_checkpoint = "true";
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    nn::Linear net = small_net();
    launch::Trainer trainer(job, net, arguments, {});
    trainer.load_model();
    CHECK(weights_of(net) == whole.weights);
  });
}
