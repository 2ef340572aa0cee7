// SPDX-License-Identifier: Apache-2.0
// Work: what outlives what, whose continuations run when, and who sees that waiting is in vain.
#include <peal/comm/start/threads.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::failure;
using peal::testing::wait_until;

namespace {

template <class T>
Tensor of(std::int64_t count, T value) {
  return Tensor::from(std::vector<T>(static_cast<std::size_t>(count), value), {count});
}

}  // namespace

TEST_CASE("a Work may be let go of in any way after its group") {
  Work kept[2];
  run_ranks(2, [&](const ProcessGroup& group) {
    const auto left_over = [&] {  // pending when its group goes
      const auto pair = group.split(0);
      return pair.recv(Tensor::zeros({4}), 1 - group.rank(), 7);
    };
    Work assigned = left_over(), moved = left_over();
    assigned = Work();
    moved = std::move(assigned);
    std::vector<Work> several;
    for (int i = 0; i < 4; ++i) several.push_back(left_over());
    several.erase(several.begin());
    several.assign(2, Work());
    Work both = Work::all({left_over(), left_over()});
    both = left_over();
    CHECK(!both.test());
    kept[group.rank()] = both;
  });
  for (const Work& each : kept) {  // nothing goes on after the last group
    CHECK_THROWS_WITH_AS(each.wait(), doctest::Contains("the process group is gone"), Error);
  }
}

TEST_CASE("what is in flight goes on when its group goes, with and without a Work") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(10)};
  for (const bool keeps : {true, false}) {
    std::atomic<bool> gone{false}, ran{false};
    run_ranks(2, options, [&](const ProcessGroup& group) {
      const Tensor data = of<float>(64, static_cast<float>(group.rank() + 1));
      ProcessGroup part = group.split(0);
      if (group.rank() == 1) {
        wait_until([&] { return gone.load(); });
        part.all_reduce(data).wait();
      } else {
        Work work = part.all_reduce(data);
        work.then([&] { ran = true; });
        part = {};
        if (!keeps) work = {};
        gone = true;
        if (keeps) work.wait();
        while (!ran) group.progress();
      }
      CHECK(data.to_vector<float>() == std::vector<float>(64, 3));
    });
  }
}

TEST_CASE("then() after a batch that is empty on one rank is numbered alike") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(10)};
  run_ranks(3, options, [](const ProcessGroup& group) {
    const Tensor in = of<float>(4, static_cast<float>(group.rank())), out = Tensor::zeros({4});
    std::vector<P2POp> ops;
    if (group.rank() != 2) {
      ops = {{Direction::send, in, 1 - group.rank()}, {Direction::recv, out, 1 - group.rank()}};
    }
    const Tensor sum = of<float>(4, 1), later = of<float>(4, 2);
    const Work both = group.batch_isend_irecv(ops).then([&] { return group.all_reduce(sum); });
    group.all_reduce(later).wait();
    both.wait();
    CHECK(sum.to_vector<float>() == std::vector<float>(4, 3));
    CHECK(later.to_vector<float>() == std::vector<float>(4, 6));
  });
}

TEST_CASE("a wait returns after the continuations, whichever thread runs them") {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> registered{false};
    run_ranks(2, [&](const ProcessGroup& group) {
      const Tensor data = Tensor::zeros({64});
      if (group.rank() == 1) {  // so that nothing is done before there is a continuation
        wait_until([&] { return registered.load(); });
        return group.all_reduce(data).wait();
      }
      const Work work = group.all_reduce(data);
      std::atomic<bool> began{false}, may_end{false}, ran{false}, returned{false};
      work.then([&] {
        began = true;
        wait_until([&] { return may_end.load(); });
        ran = true;
        throw Error("not today");
      });
      registered = true;
      std::thread runs(with_context([&] {  // it alone advances until the continuation runs
        while (!began) group.progress();
      }));
      wait_until([&] { return began.load(); });
      std::thread waits(with_context([&] {
        CHECK_THROWS_WITH_AS(work.wait(), "not today", Error);
        CHECK(ran);
        returned = true;
      }));
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      CHECK(!returned);
      may_end = true;
      waits.join();
      runs.join();
    });
  }
}

TEST_CASE("continuations run in the order of the calls, also where one of them waits") {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> registered{false}, issued{false};
    run_ranks(2, [&](const ProcessGroup& group) {
      std::vector<Tensor> data;
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) data.push_back(Tensor::zeros({8}));
      if (group.rank() == 1) {  // so that nothing is done before there are continuations
        wait_until([&] { return registered.load(); });
        for (const Tensor& each : data) works.push_back(group.all_reduce(each));
        issued = true;
        for (const Work& work : works) work.wait();
        return;
      }
      std::vector<int> order;
      for (std::size_t i = 0; i < 3; ++i) works.push_back(group.all_reduce(data[i]));
      works[0].then([&] {
        order.push_back(0);
        const Work last = group.all_reduce(data[3]);
        last.then([&] { order.push_back(4); });
        last.wait();
        works[0].wait();  // of its own: it is done
      });
      works[0].then([&] { order.push_back(1); });
      works[1].then([&] { order.push_back(2); });
      works[2].then([&] { order.push_back(3); });
      registered = true;
      wait_until([&] { return issued.load(); });  // when it looks, one pass may end all three
      group.progress();
      works[2].wait();
      works[0].wait();
      CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    });
  }
}

// The same calls, though one rank comes to a continuation before its next call, and another behind.
TEST_CASE("what then() starts is numbered where it was given") {
  for (int round = 0; round < 20; ++round) {
    for (const bool first_waits : {false, true}) {
      run_ranks(3, [&](const ProcessGroup& group) {
        const Tensor a = Tensor::zeros({5}), b = Tensor::zeros({5}), c = Tensor::zeros({5});
        const float mine = static_cast<float>(group.rank());
        for (const Tensor& each : {a, b, c}) std::fill_n(each.data<float>(), 5, mine);
        const Work two = group.all_reduce(a).then([&] {
          return group.all_reduce(a, ReduceOp::max).then([&] { return group.broadcast(a, 1); });
        });
        if (first_waits == (group.rank() == 1)) two.wait();
        const Work meanwhile = group.all_reduce(b), more = group.all_reduce(c, ReduceOp::min);
        two.wait();
        meanwhile.wait();
        more.wait();
        for (int i = 0; i < 5; ++i) {
          CHECK(a.data<float>()[i] == 3);
          CHECK(b.data<float>()[i] == 3);
          CHECK(c.data<float>()[i] == 0);
        }
      });
    }
  }
}

TEST_CASE("continuations start work on a thread that makes progress while others are called") {
  run_ranks(2, [](const ProcessGroup& group) {
    std::atomic<bool> stop{false};
    std::thread advances(with_context([&] {
      while (!stop) group.progress();
    }));
    for (int i = 0; i < 100; ++i) {
      const Tensor first = of<float>(64, 1), next = of<float>(128, 2), beside = of<float>(i % 7, 3);
      const Tensor root = of<float>(3, static_cast<float>(group.rank()));
      const Work both = group.all_reduce(first).then([&] { return group.all_reduce(next); });
      const Work others[] = {group.all_reduce(beside), group.broadcast(root, i % 2)};
      for (const Work& other : others) other.wait();
      both.wait();
      CHECK(next.to_vector<float>() == std::vector<float>(128, 4));
      CHECK(beside.to_vector<float>() == std::vector<float>(static_cast<std::size_t>(i % 7), 6));
      CHECK(root.to_vector<float>() == std::vector<float>(3, static_cast<float>(i % 2)));
    }
    stop = true;
    advances.join();
  });
}

TEST_CASE("then() starts work of its own group alone, and not too much of it") {
  const std::string other = failure(2, {}, [](const ProcessGroup& group) {
    const auto part = group.split(0);
    const Tensor x = Tensor::zeros({4});
    group.all_reduce(x).then([&] { return part.all_reduce(x); }).wait();
  });
  CHECK(contains(other, "of another group"));
  const std::string many = failure(2, {}, [](const ProcessGroup& group) {
    const Tensor x = Tensor::zeros({4});
    const auto start = [&] {
      std::vector<Work> all;
      for (int i = 0; i < 17; ++i) all.push_back(group.all_reduce(x.clone()));
      return Work::all(std::move(all));
    };
    group.all_reduce(x).then(start).wait();
  });
  CHECK(contains(many, "more than 16 collectives"));
}

// Each group has its own deadline, which moves on while messages of the group move.
TEST_CASE("a poll sees the deadline of its own group while another's are polled too") {
  std::atomic<int> told{0};
  const std::string message =
      failure(2, {.deadline = std::chrono::milliseconds(4000)}, [&](const ProcessGroup& group) {
        const auto lively = group.split(0), dead = group.split(0);
        const int other = 1 - group.rank();
        const Tensor never = Tensor::zeros({4}), nor = Tensor::zeros({4}),
                     word = Tensor::zeros({1});
        const Work first = lively.recv(never, other, 7), second = dead.recv(nor, other, 7);
        while (true) {
          const Work sent = lively.send(word, other);
          lively.recv(word.clone(), other).wait();
          sent.wait();
          static_cast<void>(first.test());
          if (second.test()) break;
        }
        ++told;
        second.wait();
      });
  CAPTURE(message);
  CHECK(contains(message, "PEAL_TIMEOUT"));
  CHECK(told >= 1);
}

TEST_CASE("two collectives are one Work, also where they are groups of one, lists, or fail") {
  for (const int world : {1, 2, 3}) {
    run_ranks(world, [&](const ProcessGroup& group) {
      const int n = group.world();
      const Tensor all = Tensor::zeros({4 * n}), part = Tensor::zeros({4}), more = all.clone();
      for (std::int64_t i = 0; i < 4 * n; ++i) all.data<float>()[i] = static_cast<float>(i);
      const auto expected = [&](std::int64_t i) { return static_cast<float>(i * n); };
      std::vector<int> order;
      const Work both = group.reduce_scatter(part, all).then([&] {
        order.push_back(1);
        return group.all_gather(more, part);
      });
      both.then([&] { order.push_back(2); });
      const Work three = both.then([&] { return group.all_reduce(more, ReduceOp::max); });
      three.wait();
      CHECK(three.test());
      const Work alone = group.all_reduce(more, ReduceOp::max).then([] { return Work(); });
      alone.wait();
      for (std::int64_t i = 0; i < 4 * n; ++i) CHECK(more.data<float>()[i] == expected(i));
      CHECK(order == std::vector<int>{1, 2});

      const Tensor ints = Tensor::zeros({3}, DType::i32);
      const Work lists = group.all_reduce_coalesced({part, ints}).then([&] {
        return group.all_reduce_coalesced({part, ints});
      });
      const Work last = Work::all({lists, group.barrier()});
      last.synchronize();

      if (n == 1) return;  // there f runs, and throws, at once
      const Work fails = group.all_reduce(part).then([&]() -> Work { throw Error("not today"); });
      CHECK_THROWS_WITH_AS(fails.wait(), "not today", Error);
      CHECK(fails.test());
      const Work later = group.all_reduce(part).then([&] {
        const Work inner = group.all_reduce(part);
        inner.then([] { throw Error("nor tomorrow"); });
        return inner;
      });
      bool ran = false;
      later.then([&] { ran = true; });
      CHECK_THROWS_WITH_AS(later.wait(), "nor tomorrow", Error);
      CHECK(!ran);
    });
  }
}

TEST_CASE("a list of tensors becomes the root's") {
  run_ranks(3, [](const ProcessGroup& group) {
    for (int root = 0; root < 3; ++root) {
      const auto mine = static_cast<float>(10 * root + group.rank());
      const Tensor a = of(5, mine), none = Tensor::zeros({0}), b = of(6, mine + 1);
      const Tensor c = of<std::int64_t>(7, 100 + group.rank());
      const auto before = a.view().storage->version(), sent = a.view().storage->broadcasts();
      group.broadcast_coalesced({a, c, none, b}, root, "buffers").wait();
      for (const float v : a.to_vector<float>()) CHECK(v == static_cast<float>(11 * root));
      for (const float v : b.to_vector<float>()) CHECK(v == static_cast<float>(11 * root + 1));
      for (const auto v : c.to_vector<std::int64_t>()) CHECK(v == 100 + root);
      // The root's were only read, so what autograd saved of them is still as it was.
      CHECK((a.view().storage->version() == before) == (group.rank() == root));
      CHECK(a.view().storage->broadcasts() == sent + 1);
    }
  });
}
