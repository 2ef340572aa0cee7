// SPDX-License-Identifier: Apache-2.0
// Memory that runs out once, at every allocation that a collective makes: who called is told, and
// so is everybody else; nobody hangs, and nothing runs half made. In a program of its own, for it
// replaces operator new.
#include <peal/comm/group/selection.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

namespace {

thread_local int left = -1;  // allocations of this thread until one fails; negative: none does
std::atomic<int> failures{0};

void* allocate(std::size_t bytes, std::size_t align) {
  if (left == 0) {
    left = -1;
    ++failures;
    throw std::bad_alloc();
  }
  if (left > 0) --left;
  const std::size_t whole = (bytes + align - 1) / align * align;
  void* memory = std::aligned_alloc(align, whole == 0 ? align : whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Where GCC sees through it, it takes new for one and free() for another's.
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  return allocate(bytes, static_cast<std::size_t>(align));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

using namespace peal;
using namespace peal::comm;

namespace {

// True where the nth allocation of rank 0's call failed, and was seen; false where it makes fewer.
bool fails_at(int n, const std::function<Work(const ProcessGroup&)>& call) {
  failures = 0;
  std::atomic<int> finished{0};
  std::string message;
  try {
    run_ranks(2, {.deadline = std::chrono::milliseconds(60000)}, [&](const ProcessGroup& group) {
      call(group).wait();  // plans are made, and memory is at hand
      left = group.rank() == 0 ? n : -1;
      std::exception_ptr thrown;
      try {
        call(group).wait();
      } catch (...) {
        thrown = std::current_exception();
      }
      left = -1;
      if (thrown) {  // nothing runs on what was left half made
        for (int i = 0; i < 100; ++i) group.progress();
        std::rethrow_exception(thrown);
      }
      ++finished;
    });
  } catch (const std::exception& error) {
    message = error.what();
  }
  CAPTURE(n);
  CAPTURE(message);
  if (failures == 0) {
    CHECK(message.empty());
    CHECK(finished == 2);
    return false;
  }
  // Where the rank itself needed no more of it, it may go on; then all do.
  CHECK((finished == 2) == message.empty());
  return true;
}

// The fewest allocations of rank 0 to issue a call like the one before, to which rank 1 has not
// come, or has come already; and to wait for it there.
int allocations(const std::string& algorithms, const std::function<Work(const ProcessGroup&)>& call,
                bool first = true) {
  constexpr int many = 1000000, calls = 8;
  int fewest = many;
  std::atomic<int> issued{0};
  run_ranks(2, {.algorithms = algorithms}, [&](const ProcessGroup& group) {
    for (int i = 1; i <= calls; ++i) {
      // Nothing moves while it is counted.
      const bool leads = (group.rank() == 0) == first;
      if (!leads) testing::wait_until([&] { return issued >= i; });
      left = many;
      const Work work = call(group);
      if (!leads) work.wait();
      if (group.rank() == 0) fewest = std::min(fewest, many - left);
      left = -1;
      if (leads) issued = i;
      work.wait();
    }
  });
  return fewest;
}

}  // namespace

TEST_CASE("memory may run out at any place of a collective") {
  using std::chrono::milliseconds;
  const auto calls = {
      +[](const ProcessGroup& group) {  // rank 0 does not end it within the call
        if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(2));
        return group.all_reduce(Tensor::zeros({100}));
      },
      +[](const ProcessGroup& group) {
        return group.all_reduce(Tensor::zeros({100}, DType::bf16));
      },
      +[](const ProcessGroup& group) {
        return group.all_reduce_coalesced({Tensor::zeros({5}), Tensor::zeros({7})});
      },
      +[](const ProcessGroup& group) {
        return group.batch_isend_irecv({{Direction::send, Tensor::zeros({9}), 1 - group.rank()},
                                        {Direction::recv, Tensor::zeros({9}), 1 - group.rank()}});
      },
  };
  for (const auto& call : calls) {
    int places = 0;
    while (places < 500 && fails_at(places, call)) ++places;
    MESSAGE(places << " allocations, each failed once");
    CHECK(places > 1);
    CHECK(places < 500);
  }
}

TEST_CASE("a call finds the plan of the one before, whoever chose the algorithm") {
  const Selection selection("", 2, 1);
  const std::string chosen(
      selection.choose(Collective::all_reduce, 400, {.shared = true}).algorithm);
  const Tensor data[] = {Tensor::zeros({100}), Tensor::zeros({100})};
  const auto all_reduce = [&](const ProcessGroup& group) {
    return group.all_reduce(data[group.rank()]);
  };
  const int by_default = allocations("", all_reduce);
  CHECK(by_default > 0);
  CHECK(allocations("all_reduce=" + chosen, all_reduce) == by_default);
}

// An operation takes some.
TEST_CASE("a small call to which the others have come is over in it, and takes no memory") {
  for (const std::int64_t count : {1, 20, 100}) {
    std::vector<Tensor> data{Tensor::zeros({count}), Tensor::zeros({count})};
    const auto mine = [&](const ProcessGroup& group) -> const Tensor& {
      return data[static_cast<std::size_t>(group.rank())];
    };
    const auto calls = [&](const std::function<Work(const ProcessGroup&)>& call) {
      return allocations("", call, false);
    };
    CHECK(calls([&](const ProcessGroup& group) { return group.all_reduce(mine(group)); }) == 0);
    // These are known by their plan alone.
    const int broadcast =
        calls([&](const ProcessGroup& group) { return group.broadcast(mine(group), 1); });
    CHECK(broadcast <
          allocations(
              "", [&](const ProcessGroup& group) { return group.broadcast(mine(group), 0); }));
  }
}

TEST_CASE(
    "a post that fails half way leaves nothing for others to read, or in the way of the next") {
  int places = 0;
  for (bool failed = true; failed && places < 500; ++places) {
    CAPTURE(places);
    const auto switchboard = std::make_shared<Switchboard>(3);
    ThreadsTransport one(switchboard, 0), two(switchboard, 1), three(switchboard, 2);
    const Channel channel{.sequence = 1, .signature = 7};
    std::array<std::byte, 4> out{}, in{}, got{}, answer{};
    const auto posts = [&](std::byte value) {
      out.fill(value);
      const auto data = [](auto& memory) { return memory.data(); };
      const Message round[] = {{Direction::recv, 1, data(in), 4},
                               {Direction::send, 1, data(out), 4},
                               {Direction::send, 2, data(out), 4},
                               {Direction::send, 1, data(out), 4},
                               {Direction::recv, 2, data(in), 4}};
      return one.post(channel, round);
    };
    left = places;
    try {
      posts(std::byte{1});
      failed = false;
    } catch (const std::bad_alloc&) {
    }
    left = -1;
    if (!failed) break;
    const auto receive = [&](ThreadsTransport& rank) {
      return rank.post(channel, std::array{Message{Direction::recv, 0, got.data(), 4}});
    };
    const Ticket first = receive(two), second = receive(two), third = receive(three);
    for (ThreadsTransport* rank : {&two, &three}) {
      CHECK(!rank->test(rank == &two ? first : third));
    }
    const Ticket again = posts(std::byte{2});
    CHECK(two.test(first));
    CHECK(two.test(second));
    CHECK(three.test(third));
    CHECK(got == std::array{std::byte{2}, std::byte{2}, std::byte{2}, std::byte{2}});
    // The receives of the one that failed have no claim on what comes.
    answer.fill(std::byte{3});
    for (ThreadsTransport* rank : {&two, &three}) {
      rank->post(channel, std::array{Message{Direction::send, 0, answer.data(), 4}});
    }
    CHECK(one.test(again));
    CHECK(in == answer);
  }
  MESSAGE(places << " allocations, each failed once");
  CHECK(places > 3);
  CHECK(places < 500);
}
