// SPDX-License-Identifier: Apache-2.0
// The process group over threads: every way to go wrong, and what it says.
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::alone_on_rank_0;
using peal::testing::contains;
using peal::testing::failure;
using peal::testing::wait_until;

TEST_CASE("an exception on one rank reaches all with its own message") {
  std::atomic<int> told{0};
  const std::string message = failure(3, {}, [&](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({10});
    if (group.rank() == 1) {
      group.all_reduce(data).wait();
      throw std::runtime_error("disk of rank 1 is on fire");
    }
    try {
      while (true) group.all_reduce(data).wait();
    } catch (const Error& error) {
      if (contains(error.what(), "on fire")) ++told;
      throw;
    }
  });
  CHECK(told == 2);
  CHECK(contains(message, "on fire"));
}

TEST_CASE("calls that differ never meet, and both are named") {
  using Calls = void (*)(const ProcessGroup& group, bool first);
  constexpr Calls all[] = {
      [](const ProcessGroup& group, bool first) {  // sizes
        const Tensor data = Tensor::zeros({first ? 4000 : 4001});
        group.all_reduce(data, ReduceOp::sum, "bucket 3: fc1.weight").wait();
      },
      [](const ProcessGroup& group, bool first) {  // reductions
        const Tensor data = Tensor::zeros({4});
        group.all_reduce(data, first ? ReduceOp::sum : ReduceOp::max).wait();
      },
      [](const ProcessGroup& group, bool first) {  // types
        const Tensor data = Tensor::zeros({4}, first ? DType::f32 : DType::i32);
        group.all_reduce(data).wait();
      },
      [](const ProcessGroup& group, bool first) {  // purposes
        const Tensor data = Tensor::zeros({4});
        group.all_reduce(data, ReduceOp::sum, {"of step", first ? 1u : 2u}).wait();
      },
      [](const ProcessGroup& group, bool first) {  // one rank is done at once, and goes on
        const Tensor data = Tensor::zeros({first ? 0 : 4});
        group.all_reduce(data).wait();
        group.barrier().wait();
      },
  };
  std::string messages[std::size(all)];
  std::vector<std::thread> runs;  // beside each other, as ranks look at each other after a second
  for (std::size_t i = 0; i < std::size(all); ++i) {
    runs.emplace_back([&messages, &all, i] {
      messages[i] =
          failure(2, {}, [&](const ProcessGroup& group) { all[i](group, group.rank() == 0); });
    });
  }
  for (std::thread& run : runs) run.join();
  for (const std::string& message : messages) {
    CAPTURE(message);
    CHECK(contains(message, "#"));
    CHECK(contains(message, "same order"));
  }
}

TEST_CASE("a poll sees what a wait would see") {
  std::atomic<int> told{0};
  std::atomic<bool> posted{false};  // else rank 1 could give up before rank 0 has anything to poll
  failure(2, {}, [&](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    if (group.rank() == 1) {
      while (!posted) std::this_thread::yield();
      throw std::runtime_error("rank 1 gives up");
    }
    const Work work = group.all_reduce(data);
    posted = true;
    while (!work.test()) continue;
    bool ran = false;
    work.then([&] { ran = true; });
    CHECK(!ran);
    CHECK_THROWS_WITH((void)work.wait(), doctest::Contains("gives up"));
    CHECK_THROWS_WITH((void)group.all_reduce(data), doctest::Contains("gives up"));
    ++told;
  });
  CHECK(told == 1);
}

TEST_CASE("a continuation's exception belongs to its own work") {
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor x = Tensor::zeros({4}), y = Tensor::zeros({4});
    const Work first = group.all_reduce(x), second = group.all_reduce(y);
    bool ran = false;
    first.then([] { throw Error("not today"); });
    second.then([&] { ran = true; });
    second.wait();
    CHECK(ran);
    CHECK_THROWS_WITH(first.wait(), "not today");
  });
}

TEST_CASE("different operations are an error that names both, and not the deadline's") {
  const std::string message = failure(2, {}, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({8});
    if (group.rank() == 0) {
      group.broadcast(data, 1).wait();
    } else {
      group.broadcast(data, 0).wait();
    }
    group.barrier().wait();
  });
  CAPTURE(message);
  CHECK(contains(message, "broadcast #"));
  CHECK(contains(message, "same order"));
  CHECK_FALSE(contains(message, "PEAL_TIMEOUT"));
}

TEST_CASE(
    "a rank that never comes is found by the deadline, and the message says who waits for what") {
  ProcessGroup::Options options;
  options.deadline = std::chrono::milliseconds(4000);  // the start-up as well
  const auto alone = alone_on_rank_0(
      [](const ProcessGroup& group) { group.all_reduce(Tensor::zeros({8})).wait(); });
  const std::string message = failure(2, options, alone);
  CAPTURE(message);
  CHECK(contains(message, "PEAL_TIMEOUT"));
  CHECK(contains(message, "rank 0: all_reduce #"));
}

TEST_CASE("PEAL_TIMEOUT is a number of seconds, a thousandth at least") {
  const auto options_with = [](const char* text) {
    const char* const before = std::getenv("PEAL_TIMEOUT");
    const std::string kept = before == nullptr ? "" : before;
    setenv("PEAL_TIMEOUT", text, 1);
    const auto finally = std::shared_ptr<void>(nullptr, [&](void*) {
      if (before == nullptr) unsetenv("PEAL_TIMEOUT");
      if (before != nullptr) setenv("PEAL_TIMEOUT", kept.c_str(), 1);
    });
    return ProcessGroup::Options::from_environment();
  };
  CHECK(options_with("0.001").deadline == std::chrono::milliseconds(1));
  CHECK(options_with("2.5").deadline == std::chrono::milliseconds(2500));
  for (const char* wrong : {"0.0009", "0", "-1", "1e9", "nan", "inf", "", "soon", "3 s"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(
        options_with(wrong),
        concat("PEAL_TIMEOUT: expected a number of seconds, 0.001 at least, got '", wrong, "'")
            .c_str(),
        Error);
  }
}

TEST_CASE("a message of another size is an error that names both") {
  const std::string message = failure(2, {}, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({group.rank() == 0 ? 256 : 255});
    (group.rank() == 0 ? group.send(data, 1) : group.recv(data, 0)).wait();
    group.barrier().wait();
  });
  CAPTURE(message);
  CHECK(contains(message, "recv from rank 0 (255 f32, tag 0)"));
  CHECK(contains(message, "expected 1020 bytes from rank 0, got 1024"));
}

TEST_CASE("a receive from any source: what can go wrong says who") {
  const std::string other_size = failure(3, {}, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({group.rank() == 0 ? 3 : 4});
    if (group.rank() == 2) group.send(data, 0).wait();
    if (group.rank() == 0) group.recv(data, any_source).wait();
    group.barrier().wait();
  });
  CAPTURE(other_size);
  CHECK(contains(other_size, "recv from any rank (3 f32, tag 0)"));
  CHECK(contains(other_size, "expected 12 bytes from rank 2, got 16"));
  ProcessGroup::Options options;
  options.deadline = std::chrono::milliseconds(4000);  // the start-up as well
  const auto alone = alone_on_rank_0(
      [](const ProcessGroup& group) { group.recv(Tensor::zeros({2}), any_source, 5).wait(); });
  const std::string nobody_sends = failure(2, options, alone);
  CAPTURE(nobody_sends);
  CHECK(contains(nobody_sends, "recv from any rank (2 f32, tag 5) has not moved"));
  CHECK(contains(nobody_sends, "it waits for 8 B from any rank"));
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    CHECK_THROWS_WITH_AS((void)group.send(data, any_source),
                         doctest::Contains("expected another rank to "), Error);
    const Work work = group.all_reduce(data);
    work.wait();
    CHECK_THROWS_WITH_AS((void)work.source(), doctest::Contains("no receive"), Error);
  });
  CHECK_THROWS_WITH_AS((void)ProcessGroup::alone().recv(Tensor::zeros({1}), any_source),
                       doctest::Contains("alone"), Error);
}

TEST_CASE("bad arguments are errors before anything is sent") {
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor four = Tensor::zeros({4}), five = Tensor::zeros({5}),
                 whole = Tensor::zeros({4}, DType::i32);
    CHECK_THROWS_WITH_AS((void)group.broadcast(four, 2), doctest::Contains("0 to 1, got 2"), Error);
    CHECK_THROWS_AS((void)group.all_reduce(four, five, ReduceOp::sum), Error);
    CHECK_THROWS_AS((void)group.all_reduce(four, whole, ReduceOp::sum), Error);
    CHECK_THROWS_WITH_AS((void)group.all_reduce(four, ReduceOp::bxor), doctest::Contains("bxor"),
                         Error);
    CHECK_THROWS_AS((void)group.all_gather(five, four), Error);
    group.all_reduce(four).wait();
  });
}

TEST_CASE("a batch or a list with a fault in it sends nothing, and says which") {
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor four = Tensor::zeros({4}), eight = Tensor::zeros({8}),
                 whole = Tensor::zeros({8}, DType::i32);
    const int other = 1 - group.rank();
    CHECK_THROWS_WITH_AS((void)group.batch_isend_irecv({{Direction::send, four, other},
                                                        {Direction::recv, four, group.rank()}}),
                         doctest::Contains("expected another rank to "), Error);
    CHECK_THROWS_WITH_AS((void)group.all_gather_coalesced({eight, whole}, {four, four}),
                         doctest::Contains("tensor 1 of out is i32, of in f32"), Error);
    CHECK_THROWS_WITH_AS((void)group.reduce_scatter_coalesced({four}, {eight, eight}),
                         doctest::Contains("in has 2 tensors, out 1"), Error);
    CHECK_THROWS_WITH_AS((void)group.reduce_scatter_coalesced({four, four}, {eight, four}),
                         doctest::Contains("tensor 1 of in expected 8 elements"), Error);
    const std::uint64_t before = group.sequence();
    CHECK_THROWS_WITH_AS((void)group.all_reduce_coalesced({whole, four}, ReduceOp::bor),
                         doctest::Contains("bor"), Error);
    CHECK_THROWS_AS((void)group.reduce_scatter_coalesced({whole.rows(0, 4), four}, {whole, eight},
                                                         ReduceOp::bor),
                    Error);
    CHECK(group.sequence() == before);  // nor the types that could have been reduced
    const Work work = group.batch_isend_irecv(
        {{Direction::send, four, other}, {Direction::recv, four.clone(), any_source}});
    CHECK_THROWS_AS((void)work.source(), Error);
    work.wait();
    group.all_reduce(four).wait();
  });
  const std::string message = failure(2, {}, [](const ProcessGroup& group) {
    const bool first = group.rank() == 0;
    const Tensor a = Tensor::zeros({first ? 3 : 4}), b = Tensor::zeros({first ? 4 : 3});
    group.all_reduce_coalesced({a, b}).wait();
  });
  CAPTURE(message);
  CHECK(contains(message, "sum of 7 f32 in 2 pieces"));
  CHECK(contains(message, "same order"));
}
