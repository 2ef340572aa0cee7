// SPDX-License-Identifier: Apache-2.0
// Lists of calls that start together.
#include <peal/comm/group/coalescing.h>
#include <peal/comm/start/threads.h>

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using Values = std::vector<float>;

namespace {

Tensor filled(std::int64_t count, int value) {
  return Tensor::from(Values(static_cast<std::size_t>(count), static_cast<float>(value)), {count});
}

Values values(const Tensor& tensor) { return tensor.to_vector<float>(); }

bool all_are(const Tensor& tensor, int value) {
  return values(tensor) == values(filled(tensor.numel(), value));
}

// Of each call one or more, of which rank r gives r + 1.
void check_mix(const ProcessGroup& group) {
  const int world = group.world(), rank = group.rank(), last = world - 1;
  const int mine = rank + 1, sum = world * (world + 1) / 2;
  const Tensor a = filled(5, mine), b = filled(3, mine), c = filled(4, mine), d = filled(2, mine);
  const Tensor whole = Tensor::from(std::vector<double>{double(mine)}, {1});
  const Tensor e = filled(6, mine), f = filled(1, mine), g = filled(3, mine);
  const Tensor part = filled(2, mine), all = Tensor::zeros({2 * world});
  const Tensor parts = Tensor::zeros({world}), own = filled(1, mine);
  const Tensor shares = filled(3 * world, mine), share = Tensor::zeros({3});
  const Tensor at_root = Tensor::zeros({world}), dealt = Tensor::zeros({1});
  Values to_all(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) to_all[static_cast<std::size_t>(r)] = float(10 * mine + r);
  const Tensor deal = Tensor::from(to_all, {world}), came = Tensor::zeros({world});
  const Tensor out = filled(7, mine), from_left = Tensor::zeros({7});
  const OperationCounters before = group.counters();
  coalescing(
      group,
      [&](CoalescedCalls& calls) {
        calls.all_reduce(a);
        calls.broadcast(d, last);
        calls.all_reduce(c, ReduceOp::max);
        calls.all_gather(all, part);
        calls.all_reduce(b);
        calls.all_reduce(whole);
        calls.reduce_scatter(share, shares);
        if (world > 1) calls.send(out, (rank + 1) % world, 3);
        calls.reduce(e, last);
        calls.broadcast(f, 0);
        calls.broadcast(g, last);
        calls.gather(at_root, own, last);
        calls.scatter(dealt, deal, 0);
        calls.all_to_all(came, deal);
        if (world > 1) calls.recv(from_left, (rank + world - 1) % world, 3);
      },
      "a mix")
      .wait();
  CHECK(all_are(a, sum));
  CHECK(all_are(b, sum));
  CHECK(all_are(c, world));
  CHECK(all_are(d, world));
  CHECK(whole.item<double>() == sum);
  CHECK(all_are(e, rank == last ? sum : mine));
  CHECK(all_are(f, 1));
  CHECK(all_are(g, world));
  CHECK(all_are(share, sum));
  for (int r = 0; r < world; ++r) {
    CHECK(all.data<float>()[2 * r + 1] == float(r + 1));
    CHECK(came.data<float>()[r] == float(10 * (r + 1) + rank));
    if (rank == last) CHECK(at_root.data<float>()[r] == float(r + 1));
  }
  CHECK(dealt.item<float>() == float(10 + rank));
  if (world == 1) return;
  CHECK(all_are(from_left, (rank + world - 1) % world + 1));
  // The sums of one type are one call, and so are broadcasts of one root.
  const OperationCounters made = group.counters() - before;
  CHECK(made[Collective::all_reduce].calls == 3);
  CHECK(made[Collective::broadcast].calls == 2);
  CHECK(made[Direction::send].calls == 1);
}

}  // namespace

TEST_CASE("any mix of calls is one work, and those alike travel as one") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    run_ranks(world, {.deadline = std::chrono::seconds(30)}, check_mix);
  }
}

TEST_CASE("no calls are no work, and what the list throws starts nothing") {
  run_ranks(2, {.deadline = std::chrono::seconds(30)}, [](const ProcessGroup& group) {
    coalescing(group, [](CoalescedCalls&) {}).wait();
    const Tensor a = filled(4, 1);
    const std::uint64_t before = group.sequence();
    CHECK(contains(error_of([&] {
                     coalescing(group, [&](CoalescedCalls& calls) {
                       calls.all_reduce(a);
                       fail("changed my mind");
                     }).wait();
                   }),
                   "changed my mind"));
    CHECK(group.sequence() == before);
    group.barrier().wait();
    CHECK(all_are(a, 1));
  });
}

TEST_CASE("calls of which a part had begun when another was refused end on all ranks") {
  std::string said[2];
  const std::string ended = error_of([&] {
    run_ranks(2, {.deadline = std::chrono::seconds(30)}, [&](const ProcessGroup& group) {
      const Tensor a = filled(4, 1), b = filled(4, 1);
      said[group.rank()] = error_of([&] {
        coalescing(group, [&](CoalescedCalls& calls) {
          calls.all_reduce(a);
          calls.send(b, 0);  // of rank 0 to itself
        }).wait();
        group.barrier().wait();
      });
    });
  });
  CHECK(contains(said[0], "send: expected another rank to send to"));
  for (const std::string& each : {said[1], ended}) {
    CAPTURE(each);
    CHECK(contains(each, "rank 0, coalescing, of which a part had begun"));
  }
}

TEST_CASE("calls that have no order may not use what another writes") {
  run_ranks(2, {.deadline = std::chrono::seconds(30)}, [](const ProcessGroup& group) {
    const Tensor a = filled(4, 1), all = Tensor::zeros({8}), other = Tensor::zeros({8});
    const auto refused = [&](const std::function<void(CoalescedCalls&)>& list) {
      const std::uint64_t before = group.sequence();
      const std::string error = error_of([&] { coalescing(group, list).wait(); });
      CHECK(group.sequence() == before);
      return contains(error, "use one memory, and one of them writes there");
    };
    CHECK(refused([&](CoalescedCalls& calls) {
      calls.all_reduce(a);
      calls.all_reduce(a, ReduceOp::max);
    }));
    CHECK(refused([&](CoalescedCalls& calls) {
      calls.all_gather(all, a);
      calls.broadcast(all.view().part(7, 1));
    }));
    CHECK(refused([&](CoalescedCalls& calls) {
      calls.send(a, 1 - group.rank());
      calls.recv(a, 1 - group.rank());
    }));
    // Reading it twice is no harm, nor is what is in place within a call.
    coalescing(group, [&](CoalescedCalls& calls) {
      calls.all_gather(all, a);
      calls.all_gather(other, a);
    }).wait();
    CHECK(all_are(other, 1));
    const View own = all.view().part(4 * group.rank(), 4);
    coalescing(group, [&](CoalescedCalls& calls) { calls.all_gather(all, own); }).wait();
    CHECK(all_are(all, 1));
  });
}
