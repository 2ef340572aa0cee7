// SPDX-License-Identifier: Apache-2.0
// What a run goes on from: one file for all ranks, whole, or nothing; and all are told what goes
// wrong. (That it then goes on as it was: trainer_resume_test.cpp.)
#include <peal/autograd/core/context.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/processes.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "rank_errors.h"
#include "trainer_program.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

using namespace peal;
using testing::check_has;
using testing::content_of;
using testing::error_of;
using testing::errors_of;
using testing::Folder;

namespace {

std::filesystem::path newest_in(const std::filesystem::path& folder) {
  return nn::CheckpointFolder(folder).latest().value();
}

}  // namespace

TEST_CASE("true goes on where it was stopped, passes over what is broken, and begins anew") {
  const Folder folder;
  const std::string whole = (folder.path / "whole").string(), parts = folder.path / "parts";
  const auto train = [](int world, const std::string& to, int epochs) {
    launch::TrainingArguments arguments = testing::saving(to);
    arguments.num_train_epochs = epochs;
    arguments.lr_scheduler_type = "constant";
    arguments.save_strategy = "epoch";
    arguments.resume_from_checkpoint = "true";
    testing::run(world, arguments, 12);
  };
  for (const int world : {1, 2}) {
    std::filesystem::remove_all(whole);
    std::filesystem::remove_all(parts);
    train(world, whole, 3);  // of nothing
    train(world, parts, 1);
    train(world, parts, 2);
    const auto broken = newest_in(parts);
    std::filesystem::resize_file(broken, std::filesystem::file_size(broken) / 2);
    const std::string said = testing::stderr_of([&] { train(world, parts, 3); });
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
    for (const std::string& error :
         errors_of(3, [&](launch::Job& job) { launch::find_resume(job, resume, save); })) {
      check_has(error, "[launch] resume from " + resume);
      check_has(error, part);
    }
  };
  refused("", "true", "goes on in the folder of the checkpoints, and there is none; name it");
  refused(file, "true", file + " is none; name a folder (output_dir)");
  refused("", empty + "/none", "no such checkpoint or folder");
  refused("", empty, "no checkpoint is in that folder");
  RandomState state;
  const std::string sharded = folder.path / "sharded";
  nn::save_sharded(sharded, {{"random", state}});
  refused("", sharded, sharded + " is a sharded checkpoint (checkpoint.index.json)");
  refused(sharded, "true", "load it by nn::load_sharded");  // and does not begin anew
  const std::string above = folder.path / "above", inner = above + "/step-3";
  std::filesystem::create_directory(above);
  nn::save_sharded(inner, {{"random", state}});
  refused(above, "true", inner + " is a sharded checkpoint (checkpoint.index.json)");
  refused("", above, inner + " is a sharded checkpoint");
  for (const std::string& error :
       errors_of(2, [&](launch::Job& job) { launch::Checkpoints(job, {}, {}).resume(file); })) {
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
      const std::string error = error_of(
          [&] { launch::Checkpoints(job, {}, {}).resume(launch::find_resume(job, "run")); });
      std::ofstream(folder.path / concat("said", job.rank())) << error;
    }).join();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string said = content_of(folder.path / concat("said", rank));
      if (none) {
        check_has(said,
                  "[launch] resume from run: rank 1: there is no run/checkpoint-1-step-1.safe");
        check_has(said, "which rank 0 has and goes on from; let all ranks see one folder, or copy");
      } else {
        check_has(said, "the checkpoint run/checkpoint-1-step-1.safetensors is 'crc32:");
        check_has(said, "on rank 1: these are two files; let all ranks see one folder");
      }
    }
  }
}
