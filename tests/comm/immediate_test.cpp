// SPDX-License-Identifier: Apache-2.0
// Immediate collectives: calls that are over when they return, and those that go on as operations
// because a rank is late; rooms that go with the signals.
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/memory/window.h>
#include <peal/comm/start/threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "collective_values.h"
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::comm::testing::element;
using peal::comm::testing::filled;
using peal::testing::wait_until;

namespace {

void check(const Tensor& data, double want) {
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    const double got = element(data, i);
    PEAL_CHECK(got == want, "element ", i, " of ", data.numel(), " ", data.dtype(), ": expected ",
               want, ", got ", got);
  }
}

bool is_any_of(Collective what, std::initializer_list<Collective> all) {
  return std::ranges::find(all, what) != all.end();
}

// The same plan on each rank of one problem.
Plan plan_of(const Entry& entry, Problem problem, std::int64_t element) {
  problem.align = 64 / element;
  problem.chunk = static_cast<std::int64_t>(Window::room_bytes) / 2 / element;
  Plan made(comm::plan(entry, problem), std::string(entry.name));
  made.send_room_with_signals();
  return made;
}

}  // namespace

// Sizes on both sides of a line of the cache, of what goes with a signal, and of the room's use.
TEST_CASE("all_reduces of every small size are right, one behind the other, whoever is late") {
  for (const int world : {2, 3, 5}) {
    run_ranks(world, [&](const ProcessGroup& group) {
      int calls = 0;
      for (const DType dtype : {DType::f32, DType::u8, DType::f64, DType::bf16}) {
        const auto size = static_cast<std::int64_t>(size_of(dtype));
        for (std::int64_t bytes : {1, 8, 40, 48, 49, 56, 64, 96, 104, 105, 112, 128, 1000, 9000}) {
          const std::int64_t count = bytes / size;
          if (count == 0) continue;
          for (int again = 0; again < 4; ++again, ++calls) {
            const int mine = group.rank() + again + 1;
            const Tensor data = filled(count, dtype, [&](std::int64_t) { return mine; });
            const Tensor out = again % 2 == 0 ? data : Tensor::zeros({count}, dtype);
            // Another one is late each time.
            if (calls % 7 == group.rank())
              std::this_thread::sleep_for(std::chrono::microseconds(60));
            group.all_reduce(out, data, ReduceOp::sum).wait();
            check(out, world * (again + 1) + world * (world - 1) / 2);
            if (again % 2 == 1) check(data, mine);
          }
        }
      }
    });
  }
}

TEST_CASE("every reduction is right within its call, and is chosen by all that differs") {
  run_ranks(2, [](const ProcessGroup& group) {
    const int rank = group.rank();
    for (int again = 0; again < 3; ++again) {
      const auto reduced = [&](ReduceOp op, DType dtype, std::int64_t count) {
        const Tensor data = filled(count, dtype, [&](std::int64_t) { return 2 + 2 * rank; });
        group.all_reduce(data, op).wait();
        return data;
      };
      for (const std::int64_t count : {1, 5, 12}) {
        check(reduced(ReduceOp::sum, DType::f32, count), 6);
        check(reduced(ReduceOp::avg, DType::f32, count), 3);
        check(reduced(ReduceOp::avg, DType::i32, count), 3);
        check(reduced(ReduceOp::prod, DType::f64, count), 8);
        check(reduced(ReduceOp::max, DType::i64, count), 4);
        check(reduced(ReduceOp::min, DType::bf16, count), 2);
        check(reduced(ReduceOp::bor, DType::i32, count), 6);
        const Tensor scaled = filled(count, DType::f32, [&](std::int64_t) { return 2 + 2 * rank; });
        group.all_reduce_premultiplied(scaled, 0.5).wait();
        check(scaled, 3);
      }
    }
  });
}

TEST_CASE("a call that is over names its algorithm, counts a version, and has a number") {
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4}), large = Tensor::zeros({100'000});
    for (int i = 0; i < 3; ++i) {
      const auto number = group.sequence();
      const auto version = data.view().storage->version();
      const Work work = group.all_reduce(data);
      CHECK(work.algorithm() == "slots");
      work.wait();
      CHECK(work.test());
      CHECK(data.view().storage->version() > version);
      CHECK(group.sequence() == number + 1);
      const Work second = group.all_reduce(large), copy = second;
      CHECK(copy.algorithm() == "direct_slices");
      copy.wait();
      second.wait();
      const auto sent = data.view().storage->broadcasts(), before = data.view().storage->version();
      group.broadcast(data, 1).wait();
      CHECK((data.view().storage->version() == before) == (group.rank() == 1));
      CHECK(data.view().storage->broadcasts() == sent + 1);
    }
  });
}

// A call that is over advances nothing; so none is, while something else waits to be advanced.
TEST_CASE("calls of one group that are over at once do not starve another's operation") {
  run_ranks(3, [](const ProcessGroup& group) {
    static std::atomic<int> flags_issued;
    static std::atomic<bool> first_issued, second_issued;
    if (group.rank() == 0) flags_issued = 0, first_issued = second_issued = false;
    group.barrier().wait();
    const ProcessGroup pair = group.new_group({0, 1}), other = group.new_group({0, 2});
    const Tensor data = Tensor::zeros({100'000}), flag = Tensor::zeros({1});
    for (int i = 0; i < 3 && group.rank() != 1; ++i) other.all_reduce(flag).wait();  // it is known
    if (group.rank() == 0) {
      bool done = false;
      const Work work = pair.all_reduce(data);
      work.then([&] { done = true; });
      first_issued = true;
      wait_until([&] { return second_issued.load(); });
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      for (int i = 1; *flag.data<float>() == 0; ++i) {
        *flag.data<float>() = done || std::chrono::steady_clock::now() > end ? 1 : 0;
        wait_until([&] { return flags_issued >= i; });
        other.all_reduce(flag).wait();
      }
      CHECK(done);
      work.wait();
    } else if (group.rank() == 1) {
      wait_until([&] { return first_issued.load(); });
      const Work work = pair.all_reduce(data);
      second_issued = true;
      work.wait();
    } else {
      for (int i = 1; *flag.data<float>() == 0; ++i) {
        const Work work = other.all_reduce(flag);
        flags_issued = i;
        work.wait();
      }
    }
    group.barrier().wait();
  });
}

TEST_CASE("what a continuation throws is its work's, and its copies', also where that is over") {
  run_ranks(2, [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    for (int i = 0; i < 20; ++i) {
      const Work work = group.all_reduce(data), copy = work;
      const Work both = Work::all({work, group.barrier()});
      work.then([] { throw Error("not today"); });
      CHECK_THROWS_WITH_AS(copy.wait(), "not today", Error);
      CHECK_THROWS_WITH_AS(work.wait(), "not today", Error);
      CHECK_THROWS_WITH_AS(both.wait(), "not today", Error);
      int order = 0;
      const Work next = group.all_reduce(data).then([&] {
        CHECK(order++ == 0);
        return group.all_reduce(data);
      });
      next.then([&] { CHECK(order++ == 1); });
      next.wait();
      CHECK(order == 2);
    }
  });
}

TEST_CASE("what was over at once outlives its group, and is followed at once") {
  run_ranks(2, [](const ProcessGroup& group) {
    for (int again = 0; again < 5; ++again) {
      ProcessGroup part = group.new_group({0, 1});
      std::vector<Work> works;
      for (int i = 0; i < 3; ++i) works.push_back(part.all_reduce(Tensor::zeros({4})));
      Work one = std::move(works.back());
      works.pop_back();
      const Work several = Work::all(std::move(works));
      several.wait();
      one.wait();
      part = {};
      int ran = 0;
      for (const Work* work : {&std::as_const(one), &several}) {
        work->then([&] { ++ran; });
        work->then([&] {
              ++ran;
              return Work();
            })
            .wait();
        work->wait();
      }
      CHECK(ran == 4);
    }
  });
}

TEST_CASE("ranks whose small calls differ are told so, and none goes on") {
  for (const bool types : {false, true}) {
    const std::string message = peal::testing::error_of([&] {
      run_ranks(2, {.deadline = std::chrono::milliseconds(20000)}, [&](const ProcessGroup& group) {
        const Tensor data = Tensor::zeros({4});
        for (int i = 0; i < 3; ++i) group.all_reduce(data).wait();
        const bool first = group.rank() == 0;
        if (types) {
          group.all_reduce(Tensor::zeros({4}, first ? DType::f32 : DType::i32)).wait();
        } else {
          group.all_reduce(data, first ? ReduceOp::sum : ReduceOp::max).wait();
        }
        PEAL_CHECK(false, "it went on");
      });
    });
    CHECK(message.find("it went on") == std::string::npos);
    CHECK(message.find("all_reduce") != std::string::npos);
    CHECK(message.find(types ? "i32" : "max") != std::string::npos);
  }
}

// Whether a room goes with the signals, each rank finds out by itself.
TEST_CASE("the plans of all ranks agree on where the room is") {
  int inlined = 0;
  for (const Entry& entry : one_sided_algorithms()) {
    for (int world = 2; world <= 9; ++world) {
      if (!entry.supports(world)) continue;
      for (const std::int64_t count : {1, 7, 26, 5000}) {
        std::vector<std::int64_t> counts(1, count);
        if (is_any_of(entry.what, {Collective::all_gather, Collective::reduce_scatter,
                                   Collective::gather, Collective::scatter})) {
          counts.assign(static_cast<std::size_t>(world), count);
        } else if (entry.what == Collective::all_to_all) {
          counts.assign(static_cast<std::size_t>(world) * static_cast<std::size_t>(world), count);
        } else if (entry.what == Collective::barrier) {
          counts.clear();
        }
        const Topology nodes = single_node(world);
        Problem problem{.what = entry.what,
                        .rank = 0,
                        .world = world,
                        .root = has_root(entry.what) ? world - 1 : 0,
                        .counts = counts,
                        .nodes = nodes};
        const Plan first = plan_of(entry, problem, 4);
        for (problem.rank = 1; problem.rank < world; ++problem.rank) {
          const Plan other = plan_of(entry, problem, 4);
          CAPTURE(entry.name);
          CAPTURE(world);
          CHECK(other.inline_room == first.inline_room);
          CHECK(other.program.room == first.program.room);
        }
        if (first.inline_room) ++inlined;
      }
    }
  }
  CHECK(inlined > 0);
}

TEST_CASE("a room that goes with the signals is whole when they have come") {
  run_ranks(3, [](const ProcessGroup& group) {
    GroupRendezvous ranks(group);
    const auto window = Window::create(ranks, {0, 1, 2});
    for (std::uint64_t operation = 0; operation < 400; ++operation) {
      const auto bytes = static_cast<std::int64_t>(1 + operation % 104);
      Plan plan({.rounds = {{copy(room({0, bytes}), in({0, bytes}))}, {signal(0), await(0)}},
                 .room = bytes});
      plan.send_room_with_signals();
      CHECK(plan.inline_room);
      window->begin(plan, 1, operation, nullptr, nullptr);
      const auto of = [&](int rank) { return static_cast<int>(operation % 50) * 4 + rank; };
      std::memset(window->reach(group.rank(), Buffer::room), of(group.rank()),
                  static_cast<std::size_t>(bytes));
      for (int r = 0; r < 3; ++r) {
        if (r != group.rank()) window->signal(r);
      }
      for (int r = 0; r < 3; ++r) {
        if (r == group.rank()) continue;
        wait_until([&] { return window->await(r); });
        const std::byte* const theirs = window->reach(r, Buffer::room);
        for (std::int64_t i = 0; i < bytes; ++i) {
          PEAL_CHECK(static_cast<int>(theirs[i]) == of(r), "operation ", operation, ", byte ", i);
        }
      }
    }
  });
}
