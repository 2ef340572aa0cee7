// SPDX-License-Identifier: Apache-2.0
// The process group over threads: results, and algorithms by name. runtime_faults_test.cpp has
// every way to go wrong.
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
using peal::comm::testing::filled;
using peal::testing::alone_on_rank_0;
using peal::testing::contains;
using peal::testing::failure;
using peal::testing::Folder;
using peal::testing::wait_until;

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
