// SPDX-License-Identifier: Apache-2.0
// Whole runs that are stopped anywhere and taken up again: in their own world they end with the
// same bits, in another one each sample of the epoch comes once. All ranks go on from one file, and
// all are told what goes wrong.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/loader.h>
#include <peal/launch/processes.h>
#include <peal/launch/terminated.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "points.h"
#include "rank_errors.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

using namespace peal;
using testing::check_has;
using testing::content_of;
using testing::error_of;
using testing::errors_of;
using testing::Folder;
using testing::Points;

namespace {

// Points whose number is in x, so that a test sees who learnt from which.
struct Numbered : Points {
  using Points::Points;
  data::Batch get(std::span<const std::int64_t> indices) const override {
    data::Batch batch = Points::get(indices);
    for (std::size_t i = 0; i < indices.size(); ++i)
      batch.x.data<float>()[2 * i] = static_cast<float>(indices[i]);
    return batch;
  }
};

// What a run learnt from: the numbers of each step, of all ranks.
struct Seen {
  std::mutex lock;
  std::map<std::int64_t, std::vector<std::int64_t>> steps;

  void add(std::int64_t step, const Tensor& x) {
    const std::scoped_lock guard(lock);
    for (std::int64_t i = 0; i < x.shape()[0]; ++i)
      steps[step].push_back(static_cast<std::int64_t>(x.data<float>()[2 * i]));
  }
  std::vector<std::int64_t> sorted(std::int64_t from, std::int64_t to) {
    std::vector<std::int64_t> all;
    for (std::int64_t step = from; step < to; ++step)
      all.insert(all.end(), steps[step].begin(), steps[step].end());
    std::sort(all.begin(), all.end());
    return all;
  }
};

constexpr std::int64_t samples = 36;

enum class With { sgd, adam, zero };  // zero: adam, whose state lies with all ranks

// A rank's program: dropout, a shuffled loader, a schedule, and one of these optimizers. The last
// rank gets SIGTERM in its step of that number. Whether it ended the training.
bool train(const comm::ProcessGroup& group, launch::RunArguments arguments, With with,
           Seen* seen = nullptr, std::int64_t terminated = -1) {
  launch::Job job(group);
  arguments.batch_size = 3;
  launch::find_resume(job, arguments);
  manual_seed(3);
  nn::Linear net(2, 3);
  nn::DistributedDataParallel model(net, job.group());
  std::unique_ptr<nn::Optimizer> optimizer;
  const nn::AdamWOptions options{.lr = 0.1};
  if (with == With::adam) {
    optimizer = std::make_unique<nn::AdamW>(model.named_parameters(), options);
  } else if (with == With::zero) {
    optimizer = std::make_unique<nn::ZeroRedundancyOptimizer<nn::AdamW>>(
        group, model.named_parameters(), options);
  } else {
    optimizer = std::make_unique<nn::SGD>(model.named_parameters(),
                                          nn::SGDOptions{.lr = 0.1, .momentum = 0.9});
  }
  nn::LRScheduler scheduler(*optimizer, nn::linear_lr(1, 0.1, 24));
  data::DataLoader training(
      std::make_shared<Numbered>(samples),
      {.batch_size = arguments.batch_size, .shuffle = true, .shard = job.place(), .seed = 1});
  data::DataLoader test(std::make_shared<Points>(12),
                        {.batch_size = 12, .shard = job.place(), .exact = true});
  launch::EpochTrainer trainer(
      job, arguments, model, *optimizer,
      {.parts = {{"scheduler", scheduler}}, .after_step = [&] { scheduler.step(); }});
  const launch::Step loss = [&](nn::DistributedDataParallel& ddp, const data::Batch& batch) {
    if (seen != nullptr) seen->add(scheduler.steps(), batch.x);
    const bool is_last = job.rank() == job.world() - 1;
    if (is_last && scheduler.steps() == terminated) ::raise(SIGTERM);
    return nll_loss(log_softmax(dropout(ddp(batch.x / 16.0), 0.3, true)), batch.y);
  };
  try {
    trainer.fit(training, test, loss);
  } catch (const launch::Terminated& end) {
    check_has(end.what(), "[launch] SIGTERM: ends after step ");
    return true;
  }
  return false;
}

launch::RunArguments arguments_of(int epochs, const std::string& save,
                                  const std::string& resume = "") {
  launch::RunArguments arguments;
  arguments.epochs = epochs;
  arguments.save = save;
  arguments.resume = resume;
  arguments.keep = 100;
  arguments.save_every = 1;
  return arguments;
}

void run(int world, const launch::RunArguments& arguments, With with = With::adam,
         Seen* seen = nullptr) {
  comm::run_ranks(world,
                  [&](const comm::ProcessGroup& group) { train(group, arguments, with, seen); });
}

std::filesystem::path newest_in(const std::filesystem::path& folder) {
  return nn::CheckpointFolder(folder).latest().value();
}

}  // namespace

TEST_CASE("from whichever checkpoint a run goes on, it ends with the same bits") {
  for (const int world : {1, 2, 3}) {
    for (const With with : {With::adam, With::sgd}) {
      CAPTURE(world);
      CAPTURE(static_cast<int>(with));
      const Folder folder;
      const auto whole = folder.path / "whole";
      run(world, arguments_of(2, whole.string() + "/"), with);
      const auto files = nn::CheckpointFolder(whole).files();
      REQUIRE(std::ssize(files) == 2 * samples / 3 / world);  // each step's
      const std::string end = content_of(files[0]);
      for (std::size_t i = 1; i < files.size(); i += world == 1 ? 5 : 1) {
        const auto parts = folder.path / concat("parts", i);
        auto arguments = arguments_of(2, parts.string() + "/", files[i].string());
        arguments.save_every = 0;
        run(world, arguments, with);
        INFO(files[i].string());
        CHECK(content_of(newest_in(parts)) == end);
      }
    }
  }
}

TEST_CASE("a state that lies with all ranks is saved, and gone on from, as one of a rank") {
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    const Folder folder;
    const auto path = [&](const char* name) { return (folder.path / name).string() + "/"; };
    run(world, arguments_of(2, path("adam")), With::adam);
    run(world, arguments_of(2, path("zero")), With::zero);
    const std::string end = content_of(newest_in(folder.path / "adam"));
    CHECK(content_of(newest_in(folder.path / "zero")) == end);
    for (const bool from_zero : {true, false}) {
      const auto files = nn::CheckpointFolder(folder.path / (from_zero ? "zero" : "adam")).files();
      REQUIRE(files.size() > 2);
      const auto* const name = from_zero ? "on as adam" : "on as zero";
      run(world, arguments_of(2, path(name), files[2].string()),
          from_zero ? With::adam : With::zero);
      CHECK(content_of(newest_in(folder.path / name)) == end);
    }
  }
}

TEST_CASE("after SIGTERM at one rank all save after one step, and go on from there") {
  ::signal(SIGTERM, SIG_DFL);  // which is doctest's
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    const Folder folder;
    const auto whole = folder.path / "whole";
    run(world, arguments_of(2, whole.string() + "/"));
    const std::int64_t steps = 2 * samples / 3 / world;
    for (std::int64_t step = 0; step < steps; step += world == 1 ? 5 : 1) {
      CAPTURE(step);
      auto arguments = arguments_of(2, (folder.path / concat("parts", step)).string(), "auto");
      arguments.save_every = 0;
      std::atomic<int> ended = 0;
      comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
        ended += train(group, arguments, With::adam, nullptr, step);
      });
      CHECK(ended == world);
      const auto saved = newest_in(arguments.save);
      // The wish is heard a step after it was asked for, or two, at other ranks.
      const std::string name = saved.filename().string();
      CAPTURE(name);
      const auto last = std::stoll(name.substr(name.rfind('-') + 1));
      CHECK(last > step);
      CHECK(last <= std::min(step + 3, steps));
      run(world, arguments);
      CHECK(content_of(newest_in(arguments.save)) == content_of(newest_in(whole)));
    }
  }
}

TEST_CASE("in another world each sample of an epoch comes once") {
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 2)}) {
    CAPTURE(before);
    CAPTURE(after);
    const Folder folder;
    Seen first;
    run(before, arguments_of(1, (folder.path / "run/").string()), With::adam, &first);
    std::vector<std::int64_t> all(samples);
    for (std::int64_t i = 0; i < samples; ++i) all[static_cast<std::size_t>(i)] = i;
    const std::int64_t steps = samples / 3 / before;
    REQUIRE(first.sorted(0, steps) == all);
    // The oldest but one: after two steps. What is left is a multiple of every world's batch.
    const auto files = nn::CheckpointFolder(folder.path / "run").files();
    const auto& taken = files[files.size() - (before == 3 ? 2 : 2 * 3 / before)];
    const std::int64_t done = before == 3 ? 2 : 2 * 3 / before;
    Seen second;
    run(after, arguments_of(1, (folder.path / "other/").string(), taken.string()), With::adam,
        &second);
    auto sum = first.sorted(0, done);
    const auto rest = second.sorted(done, done + samples);
    sum.insert(sum.end(), rest.begin(), rest.end());
    std::sort(sum.begin(), sum.end());
    CHECK(sum == all);
  }
}

TEST_CASE("auto goes on where it was stopped, passes over what is broken, and begins anew") {
  const Folder folder;
  const std::string whole = (folder.path / "whole").string(), parts = folder.path / "parts";
  for (const int world : {1, 2}) {
    std::filesystem::remove_all(whole);
    std::filesystem::remove_all(parts);
    run(world, arguments_of(3, whole, "auto"));  // of nothing
    run(world, arguments_of(1, parts, "auto"));
    run(world, arguments_of(2, parts, "auto"));
    const auto broken = newest_in(parts);
    std::filesystem::resize_file(broken, std::filesystem::file_size(broken) / 2);
    const std::string said =
        testing::stderr_of([&] { run(world, arguments_of(3, parts, "auto")); });
    check_has(said,
              "a checkpoint is passed over, for it is not whole: safetensors " + broken.string());
    CHECK(content_of(newest_in(parts)) == content_of(newest_in(whole)));
  }
  CHECK(launch::beside(newest_in(parts), ".words") == parts + "/checkpoint.words");
  CHECK(launch::beside(parts, ".words") == parts + "/checkpoint.words");
  CHECK(launch::beside("new/", ".words") == "new/checkpoint.words");
  CHECK(launch::beside("run.safetensors", ".words") == "run.safetensors.words");
}

TEST_CASE("what cannot be gone on from is an error on all ranks") {
  const Folder folder;
  const std::string empty = folder.path / "empty", file = folder.path / "file";
  std::filesystem::create_directory(empty);
  std::ofstream(file) << "no checkpoint";
  const auto refused = [](const std::string& save, const std::string& resume,
                          const std::string& part) {
    for (const std::string& error : errors_of(3, [&](launch::Job& job) {
           auto arguments = arguments_of(1, save, resume);
           launch::find_resume(job, arguments);
         })) {
      check_has(error, "[launch] --resume " + resume);
      check_has(error, part);
    }
  };
  refused("", "auto", "goes on in the folder of --save, and there is none; name it");
  refused(file, "auto", file + " is none; name a folder, or go on from the file by --resume");
  refused("", empty + "/none", "no such checkpoint or folder");
  refused("", empty, "no checkpoint is in that folder");
  for (const std::string& error :
       errors_of(2, [&](launch::Job& job) { launch::Checkpoints(job, {}, {}).resume(file, 1); })) {
    check_has(error, "[launch] the checkpoint " + file);
    check_has(error, "safetensors " + file + ": ");
  }
}

TEST_CASE("a rank that has another file, or none, is named on all ranks") {
  for (const bool none : {false, true}) {
    const Folder folder;
    launch::start_processes(2, [&](launch::Job& job) {
      // Each rank has a disk of its own.
      const auto own = folder.path / concat("disk", job.rank());
      std::filesystem::create_directory(own);
      PEAL_CHECK(::chdir(own.c_str()) == 0);
      RandomState state;
      manual_seed(static_cast<std::uint64_t>(job.rank()));
      if (job.rank() == 0 || !none)
        nn::save(nn::CheckpointFolder("run").next(1), {{"random", state}}, {{"epoch", "0"}});
      auto arguments = arguments_of(1, "", "run");
      const std::string error = error_of([&] {
        launch::find_resume(job, arguments);
        launch::Checkpoints(job, {}, {}).resume(arguments.resume, 1);
      });
      std::ofstream(folder.path / concat("said", job.rank())) << error;
    }).join();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string said = content_of(folder.path / concat("said", rank));
      if (none) {
        check_has(said, "[launch] --resume run: rank 1: there is no run/checkpoint-1-step-1.safe");
        check_has(said, "which rank 0 has and goes on from; let all ranks see one folder, or copy");
      } else {
        check_has(said, "the checkpoint run/checkpoint-1-step-1.safetensors is 'crc32:");
        check_has(said, "on rank 1: these are two files; let all ranks see one folder");
      }
    }
  }
}
