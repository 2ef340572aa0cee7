// SPDX-License-Identifier: Apache-2.0
// Operation counters: what a rank has begun in a group, by kind, of how many bytes; what failed,
// and how long it waited.
#include <peal/comm/record/operation_counters.h>
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::failure;

namespace {

Tensor zeros(std::int64_t count, DType dtype = DType::f32) {
  return Tensor::zeros({count}, dtype, Device{});
}

// Calls and bytes.
bool counts(const OperationCounter& counter, std::uint64_t calls, std::uint64_t bytes) {
  return counter.calls == calls && counter.bytes == bytes && counter.failed == 0;
}

}  // namespace

TEST_CASE("calls and bytes are counted by operation, whether they are over at once or go on") {
  for (const bool shared_memory : {true, false}) {
    run_ranks(3, {.shared_memory = shared_memory}, [](const ProcessGroup& group) {
      const Tensor small = zeros(100), large = zeros(200'000), wide = zeros(12);
      const OperationCounters before = group.counters();
      for (int i = 0; i < 5; ++i) group.all_reduce(small).wait();  // that is known, after the first
      group.all_reduce(large).wait();
      group.barrier().wait();
      group.barrier().then([&] { return group.all_reduce(small); }).wait();
      group.all_reduce_coalesced({small, large, zeros(8, DType::f64)}).wait();
      group.all_gather(wide, zeros(4)).wait();
      group.reduce_scatter(zeros(4), wide).wait();
      group.all_to_all_v(zeros(6), zeros(6), std::vector<std::int64_t>(9, 2)).wait();
      group.broadcast(zeros(10, DType::f64), 1).wait();
      group.reduce(wide, 2).wait();
      group.gather(wide, zeros(4)).wait();
      const OperationCounters made = group.counters() - before;
      CHECK(counts(made[Collective::all_reduce], 9, 6 * 400 + 800'000 + (800'400 + 64)));
      CHECK(made[Collective::barrier].calls == 2);
      CHECK(counts(made[Collective::all_gather], 1, 48));
      CHECK(counts(made[Collective::reduce_scatter], 1, 48));
      CHECK(counts(made[Collective::all_to_all], 1, 24));
      CHECK(counts(made[Collective::broadcast], 1, 80));
      CHECK(counts(made[Collective::reduce], 1, 48));
      CHECK(counts(made[Collective::gather], 1, 48));
      CHECK(made[Collective::scatter] == OperationCounter());
      CHECK(made[Direction::send] == OperationCounter());
      CHECK(made.replays() == OperationCounter());
    });
  }
}

TEST_CASE("messages are counted by direction, and groups apart") {
  run_ranks(2, [](const ProcessGroup& group) {
    const ProcessGroup part = group.split(0);
    const OperationCounters before = group.counters(), of_part = part.counters();
    const int other = 1 - group.rank();
    const Tensor mine = zeros(3, DType::f64), theirs = zeros(3, DType::f64);
    const Work sent = group.send(mine, other);
    group.recv(theirs, other).wait();
    sent.wait();
    group.batch_isend_irecv({{Direction::send, mine, other}, {Direction::recv, theirs, other}})
        .wait();
    part.all_reduce(mine).wait();
    const OperationCounters made = group.counters() - before;
    CHECK(counts(made[Direction::send], 2, 48));
    CHECK(counts(made[Direction::recv], 2, 48));
    CHECK(made[Collective::all_reduce] == OperationCounter());
    CHECK(counts((part.counters() - of_part)[Collective::all_reduce], 1, 24));
  });
}

TEST_CASE("a group of one counts what it is asked for") {
  const ProcessGroup group = ProcessGroup::alone();
  const OperationCounters before = group.counters();
  const Tensor data = zeros(100), other = zeros(100);
  group.all_reduce(data).wait();
  group.all_reduce(other, data, ReduceOp::sum).wait();
  CHECK(counts((group.counters() - before)[Collective::all_reduce], 2, 800));
}

TEST_CASE("who waits for a late rank has waited, in the counters too") {
  run_ranks(2, [](const ProcessGroup& group) {
    static std::atomic<bool> waits;
    if (group.rank() == 0) waits = false;
    group.barrier().wait();
    const auto before = group.counters();
    const Tensor data = zeros(64);
    if (group.rank() == 1) peal::testing::wait_until([] { return waits.load(); });
    const Work work = group.all_reduce(data);
    waits = true;
    work.wait();
    const auto waited = (group.counters() - before)[Collective::all_reduce].waited;
    if (group.rank() == 0) CHECK(waited.count() > 0);
  });
}

TEST_CASE("what has failed is counted, and its call still") {
  std::atomic<int> seen{0};
  std::atomic<bool> under_way{false};
  const std::string message = failure(2, {}, [&](const ProcessGroup& group) {
    if (group.rank() == 1) {
      peal::testing::wait_until([&] { return under_way.load(); });
      fail("on purpose");
    }
    const OperationCounters before = group.counters();
    const Work work = group.all_reduce(zeros(64));
    under_way = true;
    CHECK(contains(error_of([&] { work.wait(); }), "on purpose"));
    const OperationCounters made = group.counters() - before;
    CHECK(made[Collective::all_reduce].calls == 1);
    CHECK(made[Collective::all_reduce].failed == 1);
    CHECK(error_of([&] { (void)group.all_reduce(zeros(64)); }) != "nothing");
    CHECK((group.counters() - before)[Collective::all_reduce].calls == 1);  // it never began
    ++seen;
  });
  CHECK(contains(message, "on purpose"));
  CHECK(seen == 1);
}

TEST_CASE("counters are printed as a table of what was called") {
  OperationCounters counters;
  CHECK(counters.text() ==
        "operation            calls             bytes    failed      waited s\n");
  counters.note_call(OperationCounters::kind(Collective::all_reduce), 400);
  counters.note_call(OperationCounters::kind(Collective::all_reduce), 600);
  counters.note_failure(OperationCounters::kind(Collective::all_reduce));
  counters.note_wait(OperationCounters::kind(Collective::all_reduce),
                     std::chrono::microseconds(1'250'000));
  counters.note_call(OperationCounters::kind(Direction::recv), 8);
  counters.note_call(OperationCounters::replay, 0);
  CHECK(fmt::format("{}", counters) ==
        "operation            calls             bytes    failed      waited s\n"
        "all_reduce               2              1000         1      1.250000\n"
        "recv                     1                 8         0      0.000000\n"
        "replay                   1                 0         0      0.000000\n");
}
