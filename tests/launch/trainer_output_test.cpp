// SPDX-License-Identifier: Apache-2.0
// A Trainer's output_dir: whose checkpoints are there, and which of them is the best.
#include <peal/launch/training/folder_lock.h>
#include <peal/nn/metrics/metric.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "trainer_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::error_of;
using testing::Folder;
using testing::Numbered;
using testing::path_ending;
using testing::Run;
using testing::run;
using testing::saving;
using testing::small_net;

namespace {

// What evaluations find, whatever the model.
struct Scripted : nn::Metric {
  Scripted() : Metric(1) {}
  void add(const Tensor&, const Tensor&, std::vector<double>&) override {}
  double of(const std::vector<double>&) const override { return script.at(at++); }
  std::vector<double> script{8, 2, 4, 3, 7};
  mutable std::size_t at = 0;
};

}  // namespace

TEST_CASE("the score that is told is that of the checkpoint whose model is loaded") {
  const Folder folder;
  auto arguments = saving(folder.path);
  arguments.overwrite_output_dir = true;
  arguments.eval_strategy = "steps";
  arguments.eval_steps = 1;
  arguments.save_steps = 2;
  arguments.load_best_model_at_end = true;
  arguments.metric_for_best_model = "scripted";
  const auto told_with_best = [&](double best) {
    std::string told;
    launch::Job job;
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(10),
                             .eval_dataset = std::make_shared<Numbered>(2),
                             .compute_metrics = {{"scripted", std::make_shared<Scripted>()}},
                             .tell = [&](const std::string& line) { told += line + "\n"; }});
    trainer.train();
    CHECK(trainer.state().best_metric.value_or(-1) == best);
    return told;
  };
  // Steps 2, 4 and 5 are saved; the greatest of all is step 1's.
  arguments.greater_is_better = true;
  check_has(told_with_best(8), "-step-5.safetensors (score: 7).");
  arguments.greater_is_better = false;
  check_has(told_with_best(2), "-step-2.safetensors (score: 2).");
  arguments.eval_delay = 100;
  const std::string told = told_with_best(-1);
  check_has(told, "no checkpoint was evaluated");
  CHECK(!testing::contains(told, "Loading best model"));
}

TEST_CASE("a run that goes on from another folder does not mix with the checkpoints of a third") {
  const Folder first, second;
  auto arguments = saving(first.path);
  run(1, arguments, 8);
  arguments.output_dir = second.path;
  arguments.seed = 7;
  run(1, arguments, 8);
  const auto files = second.entries();
  arguments.resume_from_checkpoint = first.path / "checkpoint-2";
  arguments.overwrite_output_dir = true;
  check_has(error_of([&] { run(2, arguments, 8); }), "it was saved with seed 42");
  CHECK(second.entries() == files);  // and nothing is lost
  arguments.seed = 42;
  arguments.overwrite_output_dir = false;
  check_has(error_of([&] { run(2, arguments, 8); }), "4 checkpoints of another run are there");
  arguments.overwrite_output_dir = true;
  arguments.save_steps = 500;
  run(1, arguments, 8);
  CHECK(path_ending(second.path, "-step-1.safetensors").empty());
  CHECK(!path_ending(second.path, "-step-4.safetensors").empty());
  // Its own stay, by whatever name the folder goes.
  arguments.overwrite_output_dir = false;
  arguments.output_dir = second.path / ".";
  arguments.resume_from_checkpoint = second.path / "checkpoint-4";
  arguments.num_train_epochs = 2;
  run(1, arguments, 8);
  CHECK(!path_ending(second.path, "-step-4.safetensors").empty());
  CHECK(!path_ending(second.path, "-step-8.safetensors").empty());
}

TEST_CASE("overwrite_output_dir leaves the checkpoints of a run that is still saving there") {
  const Folder folder;
  auto arguments = saving(folder.path);
  run(1, arguments, 8);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const launch::FolderLock lock(folder.path);
    if (::write(ready[1], "!", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  const auto files = folder.entries();
  arguments.overwrite_output_dir = true;
  check_has(error_of([&] { run(1, arguments, 8); }), "another run saves there");
  CHECK(folder.entries() == files);
  ::kill(other, SIGKILL);
  REQUIRE(::waitpid(other, nullptr, 0) == other);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("checkpoints of another run are gone on from, or removed, if that is asked for") {
  const Folder folder;
  auto arguments = saving(folder.path);
  run(1, arguments, 8);
  CHECK(folder.entries() >= 4);
  check_has(error_of([&] { run(2, arguments, 8); }), "4 checkpoints of another run are there");
  arguments.overwrite_output_dir = true;
  arguments.save_steps = 500;
  const Run whole = run(1, arguments, 8);
  CHECK(!path_ending(folder.path, "-step-4.safetensors").empty());
  CHECK(path_ending(folder.path, "-step-3.safetensors").empty());
  // One that is over has nothing left to do, or more where it is asked for.
  arguments.resume_from_checkpoint = "true";
  CHECK(run(1, arguments, 8).weights == whole.weights);
  arguments.seed = 7;
  check_has(error_of([&] { run(1, arguments, 8); }), "it was saved with seed 42");
}

TEST_CASE(
    "metrics are told and kept as transformers' scripts do, and train() says where it goes on") {
  const Folder folder;
  auto arguments = saving(folder.path / "run");
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    std::string told;
    launch::Trainer trainer(job, small_net(), arguments,
                            {.train_dataset = std::make_shared<Numbered>(8),
                             .tell = [&](const std::string& line) { told += line + "\n"; }});
    auto found = trainer.train().metrics;
    found.push_back({"train_samples", 8});
    told.clear();
    trainer.log_metrics("train", found);
    trainer.save_metrics("train", found);
    trainer.save_metrics("eval", {{"eval_loss", 0.5}});
    trainer.save_state();
    CHECK(trainer.is_world_process_zero() == (job.rank() == 0));
    const std::vector<launch::Value> some{{"b_loss", 2.0}, {"a_runtime", 3723.456}, {"n", 12}};
    trainer.log_metrics("some", some);
    if (job.rank() == 0) {
      check_has(told, "***** train metrics *****\n");
      check_has(told, "  train_samples            =          8\n");
      check_has(told,
                "***** some metrics *****\n"
                "  a_runtime = 1:02:03.46\n"
                "  b_loss    =     2.0000\n"
                "  n         =         12\n");
    } else {
      CHECK(told.empty());
    }
    // A callback of its own, and the run once more from its second step.
    std::int64_t steps = 0;
    trainer.add_callback(std::make_shared<testing::AtStep>([&](std::int64_t) { ++steps; }));
    CHECK(trainer.state().global_step == 2);
    trainer.train(folder.path / "run" / "checkpoint-1");
    CHECK(steps == 1);
    check_has(error_of([&] { trainer.train(concat("checkpoint-", 1 + job.rank())); }),
              "what trains");
  });
  const auto read = [&](const char* name) {
    return testing::content_of(folder.path / "run" / name);
  };
  check_has(read("train_results.json"), "\"train_samples\": 8.0");
  check_has(read("all_results.json"), "\"eval_loss\": 0.5");
  check_has(read("all_results.json"), "\"train_loss\": ");
  CHECK(!testing::contains(read("eval_results.json"), "train_loss"));
  check_has(read("trainer_state.json"), "log_history");
}
