// SPDX-License-Identifier: Apache-2.0
// Buffers of operations in flight: who writes there before wait(), an operation or the caller, and
// what all ranks are told.
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "collective_values.h"
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::comm::testing::filled;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::wait_until;

namespace {

Tensor ones(std::int64_t count) { return filled(count, 1); }

// What each of two ranks is told. Rank 0 issues, and does what it does, before rank 1 comes, which
// calls the same.
using OnRank = std::function<void(const ProcessGroup& group, const std::function<void()>& done)>;
std::vector<std::string> told(const OnRank& f, bool shared_memory) {
  std::vector<std::string> errors(2);
  std::atomic<bool> issued{false};
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(20),
                                      .shared_memory = shared_memory};
  static_cast<void>(error_of([&] {
    run_ranks(2, options, [&](const ProcessGroup& group) {
      errors[static_cast<std::size_t>(group.rank())] = error_of([&] {
        group.barrier().wait();  // both have the group before one of them can fail
        if (group.rank() == 1) wait_until([&] { return issued.load(); });
        f(group, [&] { issued = true; });
        group.barrier().wait();
      });
      issued = true;
      if (errors[static_cast<std::size_t>(group.rank())] != "nothing") throw Error("it failed");
    });
  }));
  return errors;
}

void check_told(const OnRank& f, const std::vector<std::string>& words) {
  for (const bool shared_memory : {false, true}) {
    CAPTURE(shared_memory);
    for (const std::string& error : told(f, shared_memory)) {
      CAPTURE(error);
      for (const std::string& word : words) CHECK(contains(error, word));
    }
  }
}

void check_well(const OnRank& f) {
  for (const bool shared_memory : {false, true}) {
    CAPTURE(shared_memory);
    for (const std::string& error : told(f, shared_memory)) CHECK(error == "nothing");
  }
}

}  // namespace

TEST_CASE("two operations in flight on one buffer are an error on all ranks, by both names") {
  const std::vector<std::string> words{"rank 0",   "broadcast #", "all_reduce #",
                                       "bucket 3", "in flight",   "wait for the first"};
  check_told(
      [](const ProcessGroup& group, const std::function<void()>& done) {
        const Tensor x = ones(5000);
        const Work first = group.all_reduce(x, ReduceOp::sum, "bucket 3");
        const Work second = group.broadcast(x, 1);
        done();
        first.wait();
        second.wait();
      },
      words);
  // A part of it, by another group, whose calls come in no order with the first one's.
  check_told(
      [](const ProcessGroup& group, const std::function<void()>& done) {
        done();  // rank 1 is needed for this
        const ProcessGroup part = group.split(0);
        const Tensor x = ones(5000);
        if (group.rank() == 1) {
          wait_until([&] { return group.poisoned(); });
          group.check();
        }
        const Work first = group.all_reduce(x, ReduceOp::sum, "bucket 3");
        const Work second = part.broadcast(x.rows(10, 20), 1);
        first.wait();
        second.wait();
      },
      words);
}

TEST_CASE("a message into a buffer that is sent is an error, too") {
  check_told(
      [](const ProcessGroup& group, const std::function<void()>& done) {
        const Tensor x = ones(200'000);
        const int other = 1 - group.rank();
        const Work first = group.recv(x, other), second = group.send(x, other);
        done();
        Work::all({first, second}).wait();
      },
      {"recv from rank", "send to rank", "in flight"});
}

TEST_CASE("what two operations only read, and parts that lie apart, are anybody's") {
  check_well([](const ProcessGroup& group, const std::function<void()>& done) {
    const Tensor x = ones(5000), y = Tensor::zeros({5000}), z = Tensor::zeros({5000});
    const Work first = group.all_reduce(y, x, ReduceOp::sum);
    const Work second = group.all_reduce(z, x, ReduceOp::max);
    const Tensor both = ones(6000);
    const Work third = group.all_reduce(both.rows(0, 3000));
    const Tensor half = both.rows(3000, 6000);
    half.zero_();  // while the other one is in flight
    const Work fourth = group.all_reduce(half);
    done();
    Work::all({first, second, third, fourth}).wait();
    CHECK(y.to_vector<float>() == std::vector<float>(5000, 2));
    CHECK(z.to_vector<float>() == std::vector<float>(5000, 1));
    CHECK(both.rows(0, 3000).to_vector<float>() == std::vector<float>(3000, 2));
    CHECK(half.to_vector<float>() == std::vector<float>(3000, 0));
  });
}

TEST_CASE("what is written in place before wait() is an error on all ranks") {
  const std::vector<std::string> words{"rank 0", "all_reduce #", "bucket 3", "5000 f32",
                                       "written in place between the call and wait()"};
  using Call = Work (*)(const ProcessGroup& group, const Tensor& written);
  const Call calls[] = {
      [](const ProcessGroup& group, const Tensor& written) {
        return group.all_reduce(written, ReduceOp::sum, "bucket 3");
      },
      [](const ProcessGroup& group, const Tensor& written) {  // its input alone
        return group.all_reduce(Tensor::zeros({5000}), written, ReduceOp::sum, "bucket 3");
      },
      [](const ProcessGroup& group, const Tensor& written) {
        return group.all_reduce_coalesced({ones(3), written}, ReduceOp::sum, "bucket 3");
      },
  };
  for (const Call& call : calls) {
    check_told(
        [&](const ProcessGroup& group, const std::function<void()>& done) {
          const Tensor x = ones(5000);
          const Work work = call(group, x);
          if (group.rank() == 0) x.zero_();
          done();
          work.wait();
        },
        words);
  }
}

TEST_CASE("who has waited, or looked, may write, and so may a continuation") {
  check_well([](const ProcessGroup& group, const std::function<void()>& done) {
    const Tensor x = ones(5000), y = ones(5000), z = ones(5000);
    const Work first = group.all_reduce(x), second = group.all_reduce(y);
    const Work third = group.all_reduce(z).then([&] {
      z.copy_(ones(5000));
      return group.all_reduce(z);
    });
    done();
    first.wait();
    x.copy_(ones(5000));
    const Work again = group.all_reduce(x);
    while (!second.test()) group.progress();
    y.copy_(filled(5000, 6));
    Work::all({second, third, again}).wait();
    CHECK(x.to_vector<float>() == std::vector<float>(5000, 2));
    CHECK(y.to_vector<float>() == std::vector<float>(5000, 6));
    CHECK(z.to_vector<float>() == std::vector<float>(5000, 2));
  });
}
