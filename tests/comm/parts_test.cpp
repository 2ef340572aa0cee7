// SPDX-License-Identifier: Apache-2.0
// Long messages of collectives, which go in parts.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/control/control.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;

namespace {

constexpr std::int64_t mebi = 1 << 20;

// Small integers, whose sums are exact.
float value(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 3) % 11); }

// The last message that it has posted has not come as long as it is held back.
class HeldBack : public ThreadsTransport {
 public:
  using ThreadsTransport::ThreadsTransport;
  Ticket post(Channel channel, std::span<const Message> round) override {
    return last_ = ThreadsTransport::post(channel, round);
  }
  bool test(Ticket ticket) override {
    return !(held && ticket == last_) && ThreadsTransport::test(ticket);
  }
  std::atomic<bool> held{false};

 private:
  Ticket last_ = 0;
};

}  // namespace

TEST_CASE("sums of long messages are whole, by every algorithm, in place and out of place") {
  for (const int world : {2, 3, 5}) {
    run_ranks(world, {.shared_memory = false}, [&](const ProcessGroup& group) {
      // Not a multiple of anything, and more parts than one even in slices.
      const std::int64_t count = world * mebi / 2 + 12345;
      const Tensor in = Tensor::zeros({count}), out = Tensor::zeros({count});
      for (const Entry& entry : algorithms()) {
        if (entry.what != Collective::all_reduce || !entry.supports(world)) continue;
        for (const bool in_place : {false, true}) {
          for (std::int64_t i = 0; i < count; ++i) in.data<float>()[i] = value(group.rank(), i);
          const Tensor& to = in_place ? in : out;
          group.run(Collective::all_reduce, entry.name, to, in, {count}).wait();
          for (std::int64_t i = 0; i < count; ++i) {
            float want = 0;
            for (int r = 0; r < world; ++r) want += value(r, i);
            PEAL_CHECK(to.data<float>()[i] == want, entry.name, ", element ", i, " of ", count,
                       ": expected ", want, ", got ", to.data<float>()[i]);
          }
        }
      }
    });
  }
}

TEST_CASE("a part is added while the next ones are on their way") {
  const auto switchboard = std::make_shared<Switchboard>(2);
  const auto board = Board::in_memory(2);
  const auto plan_of = [](Program program) {
    return std::make_shared<const Plan>(std::move(program));
  };
  const std::shared_ptr<const Plan> plan[] = {
      plan_of({.rounds = {{copy(out({0, 2 * mebi}), in({0, 2 * mebi}))},
                          {recv_reduce(1, out({0, 2 * mebi}))},
                          {send(1, out({0, 2 * mebi}))}}}),
      plan_of({.rounds = {{send(0, in({0, 2 * mebi}))}, {recv(0, out({0, 2 * mebi}))}}})};
  const auto run = [&](int rank) {
    auto made = std::make_unique<HeldBack>(switchboard, rank);
    HeldBack& transport = *made;
    const ProcessGroup group =
        make_group(std::move(made),
                   std::make_unique<Control>(board, rank, std::vector{0, 1}, std::vector<Peer>{}),
                   std::make_shared<Engine>(true),
                   {.deadline = std::chrono::seconds(30), .shared_memory = false});
    const Tensor in = Tensor::zeros({2 * mebi}), out = Tensor::zeros({2 * mebi});
    std::fill_n(in.data<float>(), in.numel(), static_cast<float>(rank + 1));
    transport.held = rank == 0;
    const Work work = group.run(Collective::all_reduce, plan[rank], out, in);
    if (rank == 0) {
      peal::testing::wait_until([&] {
        group.progress();
        return out.data<float>()[0] == 3;
      });
      CHECK(out.data<float>()[2 * mebi - 1] == 1);
      transport.held = false;
    }
    work.wait();
    CHECK(out.data<float>()[2 * mebi - 1] == 3);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}
