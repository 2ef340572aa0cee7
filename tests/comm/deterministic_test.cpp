// SPDX-License-Identifier: Apache-2.0
// Deterministic mode: sums have the same bits however tensors are cut into messages, and through
// whichever collective they are made.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/schedule/mix.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>
#include <peal/comm/verify/reduction_trees.h>
#include <peal/comm/verify/verify.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"
#include "schedule_worlds.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::failure;

namespace {

constexpr std::int64_t many = 4099;
constexpr Collective reductions[] = {Collective::all_reduce, Collective::reduce,
                                     Collective::reduce_scatter};

// Not whole, of many magnitudes: sums that are made in another order have other bits.
float number(int rank, std::int64_t i) {
  std::uint64_t state = 7;
  mix(state, static_cast<std::uint64_t>(rank));
  mix(state, static_cast<std::uint64_t>(i));
  const double unit = static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
  return static_cast<float>(std::ldexp(unit, static_cast<int>(state % 9)));
}

// A factor with which products are rounded.
constexpr double third = 1.0 / 3;

void store(const Tensor& data, std::int64_t i, float value) {
  if (data.dtype() == DType::f16) {
    data.data<Half>()[i] = Half(value);
  } else if (data.dtype() == DType::bf16) {
    data.data<BFloat16>()[i] = BFloat16(value);
  } else {
    data.data<float>()[i] = value;
  }
}

float stored(DType dtype, float value) {
  if (dtype == DType::f16) return Half(value);
  return dtype == DType::bf16 ? static_cast<float>(BFloat16(value)) : value;
}

void fill(const Tensor& data, int rank) {
  for (std::int64_t i = 0; i < data.numel(); ++i) store(data, i, number(rank, i));
}

std::string bits(const Tensor& data) {
  return {static_cast<const char*>(data.raw()), data.view().bytes()};
}

// From rank 0 to the last, in f32, multiplied before or divided at the end, and rounded once.
std::string by_rank(int world, DType dtype, ReduceOp op) {
  const Tensor all = Tensor::zeros({many}, dtype, Device{});
  for (std::int64_t i = 0; i < many; ++i) {
    const auto of = [&](int rank) {
      // In memory: no compiler makes one with the sum.
      const volatile float product = stored(dtype, number(rank, i)) *
                                     (op == ReduceOp::premul_sum ? static_cast<float>(third) : 1);
      return static_cast<float>(product);
    };
    float sum = of(0);
    for (int rank = 1; rank < world; ++rank) {
      sum = op == ReduceOp::prod ? sum * of(rank) : sum + of(rank);
    }
    if (op == ReduceOp::avg) sum /= static_cast<float>(world);
    store(all, i, sum);
  }
  return bits(all);
}

using Way = std::function<void(const ProcessGroup&, const View&, ReduceOp)>;

std::vector<View> cut(const View& data, std::int64_t size) {
  std::vector<View> pieces;
  for (std::int64_t at = 0; at < data.count; at += size) {
    pieces.push_back(data.part(at, std::min(size, data.count - at)));
  }
  return pieces;
}

// A few under way at a time. Two hundred are as good as thousands: what is left goes as one.
Way in_buckets(std::int64_t size) {
  return [size](const ProcessGroup& group, const View& data, ReduceOp op) {
    const std::int64_t small = std::min(200 * size, data.count);
    std::vector<View> pieces = cut(data.part(0, small), size);
    if (small < data.count) pieces.push_back(data.part(small, data.count - small));
    std::vector<Work> works;
    for (const View& piece : pieces) {
      works.push_back(op == ReduceOp::premul_sum ? group.all_reduce_premultiplied(piece, third)
                                                 : group.all_reduce(piece, op));
      if (works.size() < 8) continue;
      Work::all(std::exchange(works, {})).wait();
    }
    Work::all(std::move(works)).wait();
  };
}

// Unequal parts, one a rank.
struct Parts {
  Parts(const ProcessGroup& group, const View& data)
      : counts(static_cast<std::size_t>(group.world()), data.count / (2 * group.world())) {
    counts[0] += data.count - counts[0] * group.world();
    const std::int64_t at = group.rank() == 0 ? 0 : counts[0] + (group.rank() - 1) * counts.back();
    mine = data.part(at, counts[static_cast<std::size_t>(group.rank())]);
  }
  std::vector<std::int64_t> counts;
  View mine{};
};

void scatter_and_gather(const ProcessGroup& group, const View& data, ReduceOp op) {
  const Parts parts(group, data);
  group.reduce_scatter_v(parts.mine, data, parts.counts, op).wait();
  group.all_gather_v(data, parts.mine, parts.counts).wait();
}

void one_after_the_other(const ProcessGroup& group, const View& data, ReduceOp op) {
  const Parts parts(group, data);
  group.reduce_scatter_v(parts.mine, data, parts.counts, op)
      .then([&] { return group.all_gather_v(data, parts.mine, parts.counts); })
      .wait();
}

// What does not divide by the world goes by itself.
void scatter_lists(const ProcessGroup& group, const View& data, ReduceOp op) {
  std::vector<View> whole, part;
  for (const View& piece : cut(data, std::int64_t{64} * group.world())) {
    if (piece.count % group.world() != 0) {
      group.all_reduce(piece, op).wait();
      continue;
    }
    whole.push_back(piece);
    part.push_back(Tensor::zeros({piece.count / group.world()}, data.dtype, Device{}));
  }
  group.reduce_scatter_coalesced(part, whole, op).wait();
  group.all_gather_coalesced(whole, part).wait();
}

void to_each_root(const ProcessGroup& group, const View& data, ReduceOp op) {
  int root = 0;
  for (const View& piece : cut(data, 1000)) {
    group.reduce(piece, root, op).wait();
    group.broadcast(piece, root).wait();
    root = (root + 1) % group.world();
  }
}

std::vector<std::pair<std::string, Way>> ways() {
  return {
      {"whole", in_buckets(many)},
      {"in buckets of 7", in_buckets(7)},
      {"in buckets of 64", in_buckets(64)},
      {"in buckets of 1000", in_buckets(1000)},
      {"coalesced", [](const ProcessGroup& group, const View& data,
                       ReduceOp op) { group.all_reduce_coalesced(cut(data, 100), op).wait(); }},
      {"started by a continuation",
       [](const ProcessGroup& group, const View& data, ReduceOp op) {
         group.barrier().then([&] { return group.all_reduce(data, op); }).wait();
       }},
      {"by reduce_scatter and all_gather", scatter_and_gather},
      {"by both as one", one_after_the_other},
      {"by both, of lists", scatter_lists},
      {"by reduce and broadcast", to_each_root},
  };
}

void check_bits(const ProcessGroup& group, const std::string& name, const Way& way, DType dtype,
                ReduceOp op, bool allocated = false) {
  const Tensor data =
      allocated ? group.allocate({many}, dtype) : Tensor::zeros({many}, dtype, Device{});
  fill(data, group.rank());
  way(group, data, op);
  PEAL_CHECK(bits(data) == by_rank(group.world(), dtype, op), name, ", ", comm::name(op), " of ",
             dtype, ", ", group.world(), " ranks: other bits than from rank 0 to the last");
}

void check_all_ways(const ProcessGroup& group) {
  for (const bool allocated : {false, true}) {
    for (const auto& [name, way] : ways()) {
      check_bits(group, name, way, DType::f32, ReduceOp::sum, allocated);
      check_bits(group, name, way, DType::f32, ReduceOp::avg, allocated);
      check_bits(group, name, way, DType::f32, ReduceOp::prod, allocated);
      check_bits(group, name, way, DType::bf16, ReduceOp::avg, allocated);
      check_bits(group, name, way, DType::f16, ReduceOp::sum, allocated);
    }
    for (const std::int64_t size : {std::int64_t{7}, std::int64_t{1000}, many}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        check_bits(group, concat("in buckets of ", size), in_buckets(size), dtype,
                   ReduceOp::premul_sum, allocated);
      }
    }
  }
  check_bits(group, "in buckets of 1", in_buckets(1), DType::f32, ReduceOp::sum);
}

ProcessGroup::Options deterministic(bool shared_memory = true) {
  return {
      .deadline = std::chrono::minutes(2), .shared_memory = shared_memory, .deterministic = true};
}

}  // namespace

TEST_CASE("what deterministic mode admits has one tree of additions: by rank, at every size") {
  int verdicts = 0;
  for (const Entry& entry : all_algorithms()) {
    if (!is_reduction(entry.what) || !entry.at_once) continue;
    for (int p = 1; p <= 9; ++p) {
      if (!entry.supports(p)) continue;
      ReductionTrees trees(p);
      int by_rank = 0;
      for (int rank = 1; rank < p; ++rank) by_rank = trees.combine(by_rank, rank);
      for (const std::int64_t n : {1, p - 1, p + 1, 97, 1000}) {
        if (n == 0) continue;
        for (const World& world : comm::testing::worlds_for(entry, p, n)) {
          const auto programs = world.programs(entry);
          for (const Aliasing aliasing : {Aliasing::out_of_place, Aliasing::in_place}) {
            const Verdict verdict = verify(world.problem(), programs, aliasing);
            CHECK_MESSAGE(verdict.ok, world.text(entry, true), ": ", verdict.why);
            CHECK_MESSAGE(verdict.tree == trees.hash(by_rank), world.text(entry, true));
            ++verdicts;
          }
        }
      }
    }
  }
  CHECK(verdicts > 1000);
  const World ring{Collective::all_reduce, 3, 0, {12}};
  const Entry& entry = *find(ring.what, "ring");
  CHECK(verify(ring.problem(), ring.programs(entry), Aliasing::in_place).tree == 0);
}

TEST_CASE("in deterministic mode whatever is chosen sums by rank, and other choices stay") {
  const auto all = Rules("all_reduce=ring,reduce=chain,reduce_scatter=pairwise", "test");
  for (const bool measured : {false, true}) {
    for (const int nodes : {1, 2}) {
      for (const int world : {2, 3, 8, 33}) {
        const Selection::Measured table{"a file", measured ? all : Rules(),
                                        measured ? all : Rules()};
        const Selection usual("", world, nodes, table);
        const Selection selection("broadcast=chain", world, nodes, table, false, true);
        for (const bool shared : {false, true}) {
          const Means means{.shared = shared};
          for (std::int64_t bytes = 0; bytes <= std::int64_t{1} << 32; bytes = 2 * bytes + 1) {
            for (const Collective what : reductions) {
              const Entry* const entry = find(what, selection.choose(what, bytes, means).algorithm);
              REQUIRE(entry != nullptr);
              CHECK(entry->at_once);
              CHECK(entry->supports(world));
              CHECK((shared || !entry->one_sided));
            }
            CHECK(selection.choose(Collective::all_gather, bytes, means).algorithm ==
                  usual.choose(Collective::all_gather, bytes, means).algorithm);
            CHECK(selection.choose(Collective::broadcast, bytes, means).algorithm == "chain");
          }
        }
      }
    }
  }
}

TEST_CASE("PEAL_ALGO and deterministic mode: an algorithm that adds otherwise is an Error") {
  for (const Entry& entry : all_algorithms()) {
    const std::string rule = concat(name(entry.what), "=", entry.name, ":0-100");
    CAPTURE(rule);
    CHECK(error_of([&] { Selection(rule, 4, 1); }) == "nothing");
    const std::string error = error_of([&] { Selection(rule, 4, 1, {}, false, true); });
    CAPTURE(error);
    if (!is_reduction(entry.what) || entry.at_once) {
      CHECK(error == "nothing");
      continue;
    }
    CHECK(contains(error, concat("PEAL_ALGO: ", name(entry.what), " by ", entry.name, ": ")));
    CHECK(contains(error, "PEAL_DETERMINISTIC=1"));
    CHECK(contains(error, "choose one of direct, direct_slices, staged_slices, slots"));
  }
  const std::string native = error_of([] { Selection("reduce=native", 4, 1, {}, false, true); });
  CHECK(contains(native, "reduce by native: in deterministic mode (PEAL_DETERMINISTIC=1)"));
  CHECK(error_of([] { Selection("barrier=native", 4, 1, {}, false, true); }) == "nothing");
}

TEST_CASE("deterministic mode begins on all ranks or on none, and refuses what it cannot keep") {
  ProcessGroup::Options options = deterministic();
  options.algorithms = "all_reduce=circulant";
  CHECK(contains(failure(2, options, [](const ProcessGroup&) {}), "all_reduce by circulant"));
  run_ranks(2, deterministic(), [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({8}, DType::f32, Device{});
    const auto refused = [&](const char* algorithm) {
      return error_of([&] { (void)group.run(Collective::all_reduce, algorithm, data, data, {8}); });
    };
    CHECK(contains(refused("ring"), "run: all_reduce by ring: in deterministic mode"));
    CHECK(contains(refused("native"), "run: all_reduce by native: in deterministic mode"));
    const World world{Collective::all_reduce, 2, 0, {8}};
    const auto plan = std::make_shared<const Plan>(
        comm::plan(*find(world.what, "ring"), world.problem(group.rank())));
    CHECK(contains(error_of([&] { (void)group.run(world.what, plan, data, data); }),
                   "which is none of the table: in deterministic mode"));
    group.run(Collective::all_reduce, "direct", data, data, {8}).wait();
    group.run(Collective::all_gather, "ring", data, data.view().part(group.rank() * 4, 4), {4, 4})
        .wait();
  });
}

TEST_CASE("ranks that differ in deterministic mode are turned away at start-up") {
  const auto switchboard = std::make_shared<Switchboard>(2);
  const auto board = Board::in_memory(2);
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error = error_of([&] {
        make_group(std::make_unique<ThreadsTransport>(switchboard, rank),
                   std::make_unique<Control>(board, rank, std::vector{0, 1}, std::vector<Peer>{}),
                   std::make_shared<Engine>(true), {.deterministic = rank == 1});
      });
      told += contains(error, "PEAL_DETERMINISTIC 0") && contains(error, "PEAL_DETERMINISTIC 1");
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(told == 2);
}

TEST_CASE("PEAL_DETERMINISTIC is 0 or 1") {
  CHECK_FALSE(ProcessGroup::Options().deterministic);
  setenv("PEAL_DETERMINISTIC", "1", 1);
  CHECK(ProcessGroup::Options::from_environment().deterministic);
  setenv("PEAL_DETERMINISTIC", "0", 1);
  CHECK_FALSE(ProcessGroup::Options::from_environment().deterministic);
  setenv("PEAL_DETERMINISTIC", "true", 1);
  CHECK(error_of([] { (void)ProcessGroup::Options::from_environment(); }) ==
        "PEAL_DETERMINISTIC: expected 0 or 1, got 'true'");
  unsetenv("PEAL_DETERMINISTIC");
}

TEST_CASE("sums have the same bits however they are cut, through every collective") {
  for (const bool shared_memory : {true, false}) {
    for (int world = 1; world <= 5; ++world) {
      run_ranks(world, deterministic(shared_memory), check_all_ways);
    }
  }
}

TEST_CASE("and they have the same where ranks are on several nodes") {
  run_ranks(4, deterministic(), nodes_of(4, 2), check_all_ways);
  run_ranks(3, deterministic(), nodes_of(3, 2), check_all_ways);
}

// Of two ranks a + b has the bits of b + a, and in shared memory all that is built in sums by rank
// anyway: what depends on sizes without the mode are messages of three ranks and more.
TEST_CASE("without the mode bits depend on sizes") {
  for (const int world : {3, 4, 5}) {
    ProcessGroup::Options options = deterministic(false);
    options.deterministic = false;
    run_ranks(world, options, [](const ProcessGroup& group) {
      const auto summed = [&](std::int64_t size) {
        const Tensor data = Tensor::zeros({many}, DType::f32, Device{});
        fill(data, group.rank());
        in_buckets(size)(group, data, ReduceOp::sum);
        return bits(data);
      };
      CHECK(summed(many) != summed(1000));
    });
  }
}
