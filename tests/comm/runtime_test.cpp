// SPDX-License-Identifier: Apache-2.0
// The process group over threads: results, algorithms by name, and every way to go wrong.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/mpi/native.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/folder.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::alone_on_rank_0;
using peal::testing::contains;
using peal::testing::failure;
using peal::testing::Folder;
using peal::testing::wait_until;

namespace {

Tensor filled(std::int64_t count, float value) {
  return Tensor::from(std::vector<float>(static_cast<std::size_t>(count), value), {count});
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact at 1 to 5 ranks") {
  for (const int world : comm::testing::worlds) {
    std::atomic<std::int64_t> compared{0}, cases{0};
    run_ranks(world, [&](const ProcessGroup& group) {
      const comm::testing::Tally tally = comm::testing::check_collectives(group);
      compared += tally.compared;
      if (group.rank() == 0) cases = tally.cases;
    });
    MESSAGE("threads, world " << world << ": " << cases.load() << " cases, " << compared.load()
                              << " elements compared, none wrong");
    CHECK(cases > comm::testing::fewest.cases);
    CHECK(compared > comm::testing::fewest.compared);
  }
}

TEST_CASE("an average is the sum divided by the ranks, bit for bit") {
  constexpr int count = 4000;
  for (const int world : {2, 3, 5}) {
    run_ranks(world, [&](const ProcessGroup& group) {
      std::vector<float> sums(count);
      std::vector<double> wide(count);
      const Tensor narrow = Tensor::zeros({count}), data = Tensor::zeros({count}, DType::f64);
      // Whole numbers, so sums are exact in any order, and no multiples of the world.
      const auto value = [](int i, int rank) { return i * 31 + (rank == 0 ? 1 : 0); };
      for (int i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        for (int rank = 0; rank < world; ++rank) {
          sums[at] += static_cast<float>(value(i, rank));
          wide[at] += value(i, rank);
        }
        narrow.data<float>()[i] = static_cast<float>(value(i, group.rank()));
        data.data<double>()[i] = value(i, group.rank());
      }
      group.all_reduce(narrow, ReduceOp::avg).wait();
      group.all_reduce(data, ReduceOp::avg).wait();
      for (float& each : sums) each /= static_cast<float>(world);
      for (double& each : wide) each /= world;
      PEAL_CHECK(narrow.to_vector<float>() == sums, "f32, world ", world);
      PEAL_CHECK(data.to_vector<double>() == wide, "f64, world ", world);
    });
  }
}

TEST_CASE("an average in low precision is the f32 average, rounded once") {
  constexpr int count = 9000;
  for (const std::string algorithm :
       {"slots", "staged_slices", "direct_slices", "circulant", "direct"}) {
    CAPTURE(algorithm);
    for (const int world : {2, 3, 5}) {
      ProcessGroup::Options options;
      options.algorithms = "all_reduce=" + algorithm;
      run_ranks(world, options, [&](const ProcessGroup& group) {
        for (const DType dtype : {DType::f16, DType::bf16}) {
          // All are such numbers, of at most 7 bits; their sums have more.
          const auto value = [](std::int64_t i, int rank) {
            return static_cast<double>((i * 31 + rank * 7) % 127);
          };
          const Tensor data = comm::testing::filled(
              count, dtype, [&](std::int64_t i) { return value(i, group.rank()); });
          group.all_reduce(data, ReduceOp::avg).wait();
          for (std::int64_t i = 0; i < count; ++i) {
            double sum = 0;
            for (int rank = 0; rank < world; ++rank) sum += value(i, rank);
            const float mean = static_cast<float>(sum) / static_cast<float>(world);
            const float want = dtype == DType::f16 ? Half(mean) : BFloat16(mean);
            const double got = comm::testing::element(data, i);
            PEAL_CHECK(got == static_cast<double>(want), dtype, ", element ", i, ": expected ",
                       want, ", got ", got);
          }
        }
      });
    }
  }
}

TEST_CASE("by messages low precision goes as it is where no sum is passed on half made") {
  for (const std::string algorithm : {"direct", "circulant"}) {
    const Folder folder;
    ProcessGroup::Options options;
    options.algorithms = concat("all_reduce=", algorithm, ",reduce_scatter=", algorithm);
    options.trace = folder.path;
    run_ranks(3, options, [](const ProcessGroup& group) {
      // Rounded to bf16 after each addition, the sum would be 256.
      const Tensor data = comm::testing::filled(
          999, DType::bf16, [&](std::int64_t) { return group.rank() == 0 ? 256 : 1; });
      const Tensor part = Tensor::zeros({333}, DType::bf16);
      group.reduce_scatter(part, data).wait();
      group.all_reduce(data).wait();
      for (std::int64_t i = 0; i < 999; ++i) {
        PEAL_CHECK(comm::testing::element(data, i) == 258, "element ", i, " of all");
        PEAL_CHECK(comm::testing::element(part, i % 333) == 258, "element ", i % 333, " of a part");
      }
    });
    int found = 0;
    for (const MeasuredPart& each : read_measured(folder.path).parts) {
      if (!each.text.starts_with("all_reduce") && !each.text.starts_with("reduce_sc")) continue;
      CHECK(each.algorithm == algorithm);
      CHECK(each.element == (algorithm == "direct" ? 2 : 4));
      ++found;
    }
    CHECK(found == 6);
  }
}

TEST_CASE("every algorithm serves by name, with exact results") {
  for (const Entry& entry : all_algorithms()) {
    CAPTURE(entry.name);
    for (const int world : comm::testing::worlds) {
      if (!entry.supports(world)) continue;
      ProcessGroup::Options options;
      options.algorithms = concat(name(entry.what), "=", entry.name);
      std::atomic<std::int64_t> cases{0};
      run_ranks(world, options, [&](const ProcessGroup& group) {
        const comm::testing::Tally tally = comm::testing::check_algorithm(group, entry.what);
        if (group.rank() == 0) cases = tally.cases;
      });
      CHECK_MESSAGE(cases > 0, "no case of ", name(entry.what));
    }
  }
}

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

TEST_CASE("a schedule of one's own runs before it is in the table") {
  for (const int world : {1, 2, 3, 4, 5}) {
    run_ranks(world, [&](const ProcessGroup& group) {
      // Everyone's number to everyone, by one step round the circle after the other.
      const int me = group.rank(), next = wrap(me + 1, world), before = wrap(me - 1, world);
      Program program;
      program.rounds.push_back({copy(out({me, 1}), in({0, 1}))});
      for (int i = 0; i + 1 < world; ++i) {
        program.rounds.push_back({send(next, out({wrap(me - i, world), 1})),
                                  recv(before, out({wrap(me - i - 1, world), 1}))});
      }
      const auto plan = std::make_shared<const Plan>(program);
      const Tensor mine = Tensor::from(std::vector<float>{float(10 + me)}, {1});
      const Tensor all = Tensor::zeros({world});
      group.run(Collective::all_gather, plan, all, mine).wait();
      for (int r = 0; r < world; ++r) CHECK(all.data<float>()[r] == float(10 + r));
      CHECK_THROWS_WITH((void)group.run(Collective::all_gather, plan, mine, mine.view().part(0, 0)),
                        doctest::Contains("the program uses 1 elements of in, which has 0"));
      const Program stranger{.scratch = 0, .rounds = {{send(world, in({0, 1}))}}};
      CHECK_THROWS_WITH((void)group.run(Collective::all_gather,
                                        std::make_shared<const Plan>(stranger), all, mine),
                        doctest::Contains("talks to rank"));
      const auto refused = [&](const Step& step, const char* why) {
        const auto try_it = [&] {
          const auto made = std::make_shared<const Plan>(Program{.scratch = 0, .rounds = {{step}}});
          (void)group.run(Collective::all_gather, made, all, mine);
        };
        CHECK_THROWS_WITH(try_it(), doctest::Contains(why));
      };
      refused(send(nobody, in({0, 1})), "a send with rank -1");
      refused(recv(nobody, out({0, 1})), "names the rank of every message");
      refused(copy(out({0, 1}), in({0, 0})), "a copy of 0 elements to 1");
      refused(copy(out({0, 1}), room({1 << 20, 1})), "of room, which has");
      const Step nothing = copy(scratch({0, 0}), in({0, 0}));
      const Program idle{.scratch = 0, .rounds = {{nothing}}};
      group.run(Collective::all_gather, std::make_shared<const Plan>(idle), all, mine).wait();
    });
  }
}

TEST_CASE("an algorithm that is named runs, whatever is chosen") {
  run_ranks(3, {.algorithms = "all_reduce=circulant"}, Wire{}, [](const ProcessGroup& group) {
    const Tensor in = Tensor::from(std::vector<float>{1, 2, 3, 4}, {4}), out = Tensor::zeros({4});
    const Work chosen = group.all_reduce(out, in, ReduceOp::sum);
    chosen.wait();
    CHECK(chosen.algorithm() == "circulant");
    for (const char* name : {"ring", "recursive_doubling", "circulant"}) {
      out.zero_();
      const Work work = group.run(Collective::all_reduce, name, out, in, {4});
      work.wait();
      CHECK(work.algorithm() == name);
      CHECK(out.to_vector<float>() == std::vector<float>{3, 6, 9, 12});
    }
    const Tensor part = Tensor::zeros({2});
    const View all = group.rank() == 1 ? in.view() : View{};
    group.run(Collective::broadcast, "chain", out, all, {4}, ReduceOp::sum, 1).wait();
    CHECK(out.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
    const auto error = [&](std::string_view name, const View& to,
                           std::vector<std::int64_t> counts) {
      CHECK_THROWS_AS((void)group.run(Collective::all_reduce, name, to, in, counts), Error);
    };
    error("ring", part, {4});
    error("ring", out, {4, 4});
    error("rabenseifner", out, {-1});
    error("no such", out, {4});
    error("native", out, {4});
    CHECK(Work().algorithm().empty());
    group.all_reduce(out).wait();  // the group is as good as before
    CHECK(out.to_vector<float>() == std::vector<float>{3, 6, 9, 12});
  });
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

TEST_CASE("computing for longer than the deadline is no failure") {
  ProcessGroup::Options options;
  options.deadline = std::chrono::milliseconds(2000);
  std::atomic<int> done{0};
  run_ranks(2, options, [&](const ProcessGroup& group) {
    const Tensor data = filled(4, 3);
    const Work work = group.all_reduce(data);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    // Nobody waits while another computes still: that may be too long.
    ++done;
    wait_until([&] { return done == 2; });
    work.wait();
    CHECK(data.to_vector<float>() == std::vector<float>(4, 6));
  });
}

TEST_CASE("a rank that waits for one group serves the others") {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto a = group.new_group({0, 1}), b = group.new_group({1, 0});
    const Tensor x = filled(100000, 1), y = filled(100000, 2);
    const Work first = a.all_reduce(x), second = b.all_reduce(y);
    (group.rank() == 0 ? first : second).wait();
    (group.rank() == 0 ? second : first).wait();
    CHECK(x.to_vector<float>() == std::vector<float>(100000, 2));
    CHECK(y.to_vector<float>() == std::vector<float>(100000, 4));
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

TEST_CASE("MPI's own collectives count in ints: past them a schedule runs") {
  const std::int64_t most[] = {mpi_native_limit}, more[] = {mpi_native_limit, 1};
  const auto serves = [](std::span<const std::int64_t> counts) {
    return mpi_has_native({Collective::all_gather, DType::u8, ReduceOp::sum, 0, counts, {}, {}});
  };
  CHECK(serves(most));
  CHECK(!serves(more));
}

TEST_CASE("min and max let NaN through and order zeros") {
  run_ranks(3, [](const ProcessGroup& group) {
    const float mine[] = {group.rank() == 1 ? NAN : 1.0f, group.rank() == 2 ? -0.0f : 0.0f};
    const Tensor least = Tensor::from(std::span<const float>(mine), {2}), most = least.clone();
    group.all_reduce(least, ReduceOp::min).wait();
    group.all_reduce(most, ReduceOp::max).wait();
    CHECK(std::isnan(least.data<float>()[0]));
    CHECK(std::isnan(most.data<float>()[0]));
    CHECK(std::signbit(least.data<float>()[1]));
    CHECK(!std::signbit(most.data<float>()[1]));
  });
}
