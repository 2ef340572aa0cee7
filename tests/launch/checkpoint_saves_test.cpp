// SPDX-License-Identifier: Apache-2.0
// Where and how checkpoints of a run are saved: one run a folder, nothing half left behind, and
// what goes wrong on rank 0 is an Error on all.
#include <peal/comm/start/threads.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "rank_errors.h"

#include <memory>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace peal;
using testing::check_has;
using testing::error_of;
using testing::errors_of;
using testing::Folder;

TEST_CASE("two runs do not save into one folder, and a dead one holds none") {
  const Folder folder;
  const auto path = folder.path / "run/";
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    std::filesystem::create_directory(path);
    const launch::FolderLock lock(path);
    if (::write(ready[1], "!", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  const auto errors = [&] {
    return errors_of(
        3, [&](launch::Job& job) { launch::Checkpoints(job, {}, {}).try_to_save(path.string()); });
  };
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  for (const std::string& error : errors()) {
    check_has(error, "[launch] checkpoint: rank 0: save " + path.string() +
                         ": another run saves there (host " + host +
                         concat(", process ", other, "); end it, or save elsewhere"));
  }
  // Another user may read who it is, and not write there.
  REQUIRE(::chmod((path / ".lock").c_str(), 0444) == 0);
  for (const auto& readable : {folder.path, folder.path / "run"})
    REQUIRE(::chmod(readable.c_str(), 0777) == 0);
  const auto as_another_user = [&](const std::string& expected) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::getuid() == 0 && (::setgid(54321) != 0 || ::setuid(54321) != 0)) ::_exit(77);
      if (::access((path / ".lock").c_str(), F_OK) != 0) ::_exit(77);
      ::_exit(testing::contains(error_of([&] { const launch::FolderLock lock(path); }), expected)
                  ? 0
                  : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
  };
  as_another_user(concat("another run saves there (host ", host, ", process ", other, ")"));
  ::kill(other, SIGKILL);
  REQUIRE(::waitpid(other, nullptr, 0) == other);
  as_another_user("nothing");  // but for a warning
  REQUIRE(::chmod((path / ".lock").c_str(), 0644) == 0);
  for (const std::string& error : errors()) CHECK(error == "nothing");
  for (const int end : ready) ::close(end);
}

TEST_CASE("where nothing can be saved, all ranks say so before the training") {
  const Folder folder;
  std::ofstream(folder.path / "file") << "in the way";
  for (const std::string& error : errors_of(3, [&](launch::Job& job) {
         launch::Checkpoints(job, {}, {}).try_to_save((folder.path / "file/run/").string());
       })) {
    MESSAGE("where nothing can be saved: " << error);
    check_has(error, "[launch] checkpoint: rank 0: save " + (folder.path / "file/run/").string());
    check_has(error, "cannot make the folder: Not a directory; make it, or save elsewhere");
  }
}

TEST_CASE("another place to save is tried once the save that is under way is done") {
  const Folder folder;
  const Tensor large = Tensor::zeros({1 << 22});
  struct State {
    Tensor tensor;
    NamedTensors state_dict() const { return {{"large", tensor}}; }
    void load_state_dict(const NamedTensors&) {}
  } state{large};
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::Checkpoints checkpoints(job, {{"state", state}}, {});
    checkpoints.save((folder.path / "one/").string(), {.epoch = 1, .step = 4});
    checkpoints.try_to_save((folder.path / "two/").string());
    if (job.is_main()) CHECK(nn::CheckpointFolder(folder.path / "one").files().size() == 1);
    checkpoints.save((folder.path / "two/").string(), {.epoch = 2, .step = 8});
    checkpoints.wait();
  });
  CHECK(nn::CheckpointFolder(folder.path / "two").latest().value().filename() ==
        "checkpoint-1-step-8.safetensors");
}

TEST_CASE("what killed saves of a host that is gone left goes with the next save") {
  const Folder folder;
  const auto left = folder.path / "checkpoint-1-step-4.safetensors.gone-7f.12.0.tmp";
  std::ofstream(left) << "half of it";
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::Checkpoints checkpoints(job, {}, {});
    checkpoints.save(folder.path.string(), {.epoch = 1, .step = 4});
    checkpoints.wait();
  });
  CHECK(!std::filesystem::exists(left));
  CHECK(nn::CheckpointFolder(folder.path).files().size() == 1);
}

TEST_CASE("whatever is thrown on rank 0 as it saves is an Error on all ranks") {
  const Folder folder;
  struct State {
    NamedTensors state_dict() const { throw 7; }
    void load_state_dict(const NamedTensors&) {}
  } state;
  for (const std::string& error : errors_of(3, [&](launch::Job& job) {
         launch::Checkpoints(job, {{"state", state}}, {}).save(folder.path.string(), {});
       })) {
    check_has(error, "[launch] checkpoint: rank 0: an exception that is no std::exception");
  }
}

TEST_CASE("what fails in the background fails on all ranks, and the checkpoint before it stays") {
  const Folder folder;
  const auto path = folder.path / "run/";
  const Tensor large = Tensor::zeros({1 << 16});
  struct State {
    Tensor tensor;
    NamedTensors state_dict() const { return {{"large", tensor}}; }
    void load_state_dict(const NamedTensors&) {}
  } state{large};
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  for (const std::string& error : errors_of(3, [&](launch::Job& job) {
         launch::Checkpoints checkpoints(job, {{"state", state}}, {});
         checkpoints.save(path, {.epoch = 1, .step = 4});
         checkpoints.wait();
         // A limit on the size of files stands for a full disk.
         const rlimit small{100000, limit.rlim_max};
         if (job.is_main()) PEAL_CHECK(::setrlimit(RLIMIT_FSIZE, &small) == 0);
         checkpoints.save(path, {.epoch = 2, .step = 8});  // begins
         checkpoints.save(path, {.epoch = 3, .step = 12});
       })) {
    check_has(error, "[launch] checkpoint: rank 0: save " + folder.path.string());
    check_has(error, "step-8.safetensors: writing failed after 100000 bytes");
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::signal(SIGXFSZ, old_action);
  const auto files = nn::CheckpointFolder(path).files();
  REQUIRE(files.size() == 1);
  CHECK(nn::CheckpointFolder(path).latest().value().filename() ==
        "checkpoint-1-step-4.safetensors");
}

TEST_CASE("where each checkpoint takes the place of the one before, no best one stays") {
  const Folder folder;
  const std::string file = folder.path / "run.safetensors";
  for (const std::string& error : errors_of(2, [&](launch::Job& job) {
         launch::Checkpoints(job, {}, {}, 1, "highest given").try_to_save(file);
       })) {
    check_has(error,
              concat("save ", file, ": the best checkpoint (highest given) stays in a folder"));
  }
}
