// SPDX-License-Identifier: Apache-2.0
// Work that one rank does while the others wait.
#include <peal/autograd/core/out_of_memory.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/job.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/launch/training/learner/image_data_loaders.h>
#include <peal/tests/folder.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using std::chrono::milliseconds;

namespace {

// The others go after rank 0, which takes longer than the deadline.
void rank0_takes_long() {
  std::atomic<bool> done{false};
  std::atomic<int> late{0};
  comm::run_ranks(3, {.deadline = milliseconds(4000)}, [&](const comm::ProcessGroup& group) {
    launch::rank0_first(group, [&] {
      if (group.rank() == 0) {
        std::this_thread::sleep_for(milliseconds(5000));
        done = true;
      } else if (done) {
        ++late;
      }
    });
  });
  CHECK(late == 2);
}

// Its failure after long work is everyone's.
void rank0_fails_late() {
  std::atomic<int> told{0};
  comm::run_ranks(3, {.deadline = milliseconds(4000)}, [&](const comm::ProcessGroup& group) {
    try {
      launch::rank0_first(group, [&] {
        std::this_thread::sleep_for(milliseconds(5000));
        fail("no such host");
      });
    } catch (const Error& error) {
      if (std::string(error.what()).find("no such host") != std::string::npos) ++told;
    }
  });
  CHECK(told == 3);
}

void checkpoint_takes_long() {
  struct Slow {
    NamedTensors state_dict() const {
      std::this_thread::sleep_for(milliseconds(5000));
      return {{"slow", Tensor::scalar(1.0F)}};
    }
    void load_state_dict(const NamedTensors&) {}
  };
  const testing::Folder folder;  // whose disk may be slow, too
  comm::run_ranks(2, {.deadline = milliseconds(4000)}, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    Slow slow;
    launch::Checkpoints(job, {{"slow", slow}}, {})
        .save((folder.path / "saved").string(), {.epoch = 1});
  });
  CHECK(std::filesystem::exists(folder.path / "saved"));
}

// Rank 0 looks for them on a slow disk.
void images_take_long() {
  const testing::Folder folder;
  for (const char* const name : {"a.png", "b.png"}) std::ofstream(folder.path / name) << "image";
  comm::run_ranks(2, {.deadline = milliseconds(4000)}, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    const auto label_of = [&](const std::string& name) {
      if (group.rank() == 0 && name == "a.png") std::this_thread::sleep_for(milliseconds(5000));
      return name;
    };
    launch::ImageDataLoaders::from_name_func(job, data::image_files(folder.path), label_of,
                                             {.valid_pct = 0, .loaders = {.batch_size = 1}});
  });
}

}  // namespace

// All at once, for they do little but wait.
TEST_CASE("what one rank does while the others wait may take longer than the deadline") {
  std::vector<std::thread> all;
  for (const auto f :
       {rank0_takes_long, rank0_fails_late, checkpoint_takes_long, images_take_long}) {
    all.emplace_back([f] { CHECK_NOTHROW(f()); });
  }
  for (std::thread& each : all) each.join();
}

TEST_CASE("a failure that is no std::exception is everyone's, too") {
  std::atomic<int> told{0}, itself{0};
  comm::run_ranks(3, {.deadline = milliseconds(30000)}, [&](const comm::ProcessGroup& group) {
    try {
      launch::rank0_first(group, [] { throw 42; });
    } catch (const Error& error) {
      const std::string words =
          "rank0_first: rank 0 failed: an exception that is no std::exception";
      if (error.what() == words) ++told;
    } catch (int) {
      if (group.rank() == 0) ++itself;
    }
  });
  CHECK(told == 2);
  CHECK(itself == 1);
}

TEST_CASE("that memory ran out on rank 0 is OutOfMemory on the others") {
  std::atomic<int> told{0}, itself{0};
  comm::run_ranks(3, {.deadline = milliseconds(30000)}, [&](const comm::ProcessGroup& group) {
    try {
      launch::rank0_first(group, [] { throw std::bad_alloc(); });
    } catch (const OutOfMemory& error) {
      if (std::string(error.what()).starts_with("rank0_first: rank 0 failed: out of memory"))
        ++told;
    } catch (const std::bad_alloc&) {
      if (group.rank() == 0) ++itself;
    }
  });
  CHECK(told == 2);
  CHECK(itself == 1);
}

TEST_CASE("a Job that is made while an exception is on its way ends as any other") {
  comm::ProcessGroup group;
  struct Unwound {
    comm::ProcessGroup& group;
    ~Unwound() {
      const launch::Job job;  // to say goodbye, for example
      group = job.group();
    }
  };
  CHECK_THROWS_AS(
      [&] {
        const Unwound unwound{group};
        throw Error("over");
      }(),
      Error);
  REQUIRE(bool(group));
  CHECK(!group.poisoned());
}

TEST_CASE("a process that is alone does it once") {
  const auto alone = comm::ProcessGroup::alone();
  int times = 0;
  CHECK(launch::rank0_first(alone, [&] { return ++times; }) == 1);
  launch::rank0_first(alone, [&] { times += 10; });
  CHECK(times == 11);
}

TEST_CASE("what it gives is each rank's own") {
  std::atomic<int> before{0}, right{0};
  comm::run_ranks(3, {.deadline = milliseconds(30000)}, [&](const comm::ProcessGroup& group) {
    const std::string mine = launch::rank0_first(group, [&] {
      return std::to_string(group.rank()) + (before++ == 0 ? " first" : " later");
    });
    if (mine == std::to_string(group.rank()) + (group.rank() == 0 ? " first" : " later")) ++right;
  });
  CHECK(right == 3);
}
