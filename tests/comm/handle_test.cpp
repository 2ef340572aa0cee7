// SPDX-License-Identifier: Apache-2.0
// ProcessGroup is a handle: copies are one group, which goes with the last of them, and an empty
// one says so at every call.
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

using namespace peal;
using namespace peal::comm;
using peal::testing::error_of;

static_assert(std::is_nothrow_move_constructible_v<ProcessGroup>);
static_assert(sizeof(ProcessGroup) == sizeof(std::shared_ptr<GroupBody>));

TEST_CASE("a call on an empty handle is an error that says why it is empty") {
  const ProcessGroup none;
  CHECK(!none);
  const Tensor x = Tensor::zeros({2});
  const std::vector<std::function<void()>> calls = {
      [&] { (void)none.rank(); },
      [&] { (void)none.world(); },
      [&] { (void)none.transport(); },
      [&] { (void)none.transport(Device{}); },
      [&] { (void)none.nodes(); },
      [&] { (void)none.all_reduce(x); },
      [&] { (void)none.all_reduce(x, x, ReduceOp::sum); },
      [&] { (void)none.broadcast(x); },
      [&] { (void)none.barrier(); },
      [&] { (void)none.gather(x, x); },
      [&] { (void)none.send(x, 0); },
      [&] {
        (void)none.batch_isend_irecv({{Direction::recv, x, 0}});
      },
      [&] { (void)none.all_reduce_coalesced({x}); },
      [&] { none.all_gather_object("me"); },
      [&] { none.broadcast_object("me"); },
      [&] { (void)none.new_group({0}); },
      [&] { (void)none.split(0); },
      [&] { (void)none.allocate({2}); },
      [&] { none.attach(nullptr); },
      [&] { none.write_trace(); },
      [&] { none.progress(); },
      [&] { none.poison("a"); },
      [&] { (void)none.busy(); },
      [&] { none.check(); },
      [&] { (void)none.poisoned(); },
      [&] { agree(none, "a", "b", "c"); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    CHECK_THROWS_WITH_AS(calls[i](), doctest::Contains("this rank is no member of the group"),
                         Error);
  }
}

TEST_CASE("copies are one group, with one count of its calls") {
  run_ranks(2, [](const ProcessGroup& group) {
    const ProcessGroup copy = group;
    ProcessGroup moved = group;
    const ProcessGroup last = std::move(moved);
    CHECK(!moved);  // NOLINT: what is left is empty
    const std::uint64_t before = group.sequence();
    for (const ProcessGroup* each : {&group, &copy, &last}) {
      const Tensor x = Tensor::from(std::vector<float>{1}, {1});
      each->all_reduce(x).wait();
      CHECK(x.item<float>() == 2);
    }
    CHECK(copy.sequence() == before + 3);
    CHECK(&body_of(group) == &body_of(last));
  });
}

TEST_CASE("ranks that are not listed get an empty handle") {
  run_ranks(3, [](const ProcessGroup& group) {
    const ProcessGroup part = group.new_group({2, 0});
    CHECK(bool(part) == (group.rank() != 1));
    if (part) {
      const Tensor x = Tensor::from(std::vector<float>{1}, {1});
      part.all_reduce(x).wait();
      CHECK(x.item<float>() == 2);
      CHECK(part.rank() == (group.rank() == 2 ? 0 : 1));
    }
    const ProcessGroup odd = group.split(group.rank() == 1 ? 0 : -1);
    CHECK(bool(odd) == (group.rank() == 1));
  });
}

TEST_CASE("a group goes with its last handle") {
  run_ranks(2, [](const ProcessGroup& group) {
    std::optional<ProcessGroup> first = group.split(0);
    const auto body = body_of(*first).weak_from_this();
    std::optional<ProcessGroup> second = first;
    first.reset();
    CHECK(!body.expired());
    const Tensor x = Tensor::from(std::vector<float>{1}, {1});
    second->all_reduce(x).wait();
    CHECK(x.item<float>() == 2);
    second.reset();
    CHECK(body.expired());
  });
}

TEST_CASE("errors of a group within a world name the world's ranks, and say what is the group's") {
  run_ranks(3, {}, [](const ProcessGroup& world) {
    const ProcessGroup part = world.new_group({1, 2});
    if (!part) return;
    CHECK(part.global_rank(0) == 1);
    CHECK(part.global_rank(part.rank()) == world.rank());
    const std::string me =
        concat("[comm] rank ", world.rank(), " (", part.rank(), " of 2 in its group)");
    CHECK(error_of([&] { part.global_rank(2); }) ==
          me + ", global_rank: expected a rank of the group, 0 to 1, got 2");
    const Tensor x = Tensor::zeros({1});
    CHECK(error_of([&] { part.broadcast(x, 2).wait(); }) ==
          me + ", broadcast: expected a root among the ranks of the group, 0 to 1, got 2");
    CHECK(error_of([&] { part.send(x, part.rank()).wait(); }) ==
          concat(me, ", send: expected another rank to send to, 0 to 1, got ", part.rank(),
                 ", which is this one"));
    CHECK(error_of([&] { agree(part, "the plan", std::to_string(part.rank()), "make one"); }) ==
          "the plan is '0' on rank 1 and '1' on rank 2: make one");
  });
}
