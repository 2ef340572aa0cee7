// SPDX-License-Identifier: Apache-2.0
// One rank reads for all: every rank gets what the plan gives it, whatever the shapes, and no more.
#include <doctest/doctest.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/tests/errors.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::testing;
using Samples = std::vector<std::int64_t>;

namespace {

// Sample i comes as a row as long as the largest index of its batch, so batches differ in shape.
struct Ragged : data::Dataset {
  explicit Ragged(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    if (count == 5) throw Error("no such file");
    const auto rows = std::ssize(indices);
    const std::int64_t width = *std::max_element(indices.begin(), indices.end());
    const Samples names(indices.begin(), indices.end());
    return {Tensor::from(names, {rows}, Device{}),
            Tensor(),
            {{"mask", Tensor::zeros({rows, width}, DType::f32, Device{})},
             {"half", Tensor::zeros({1}, DType::bf16, Device{})}}};
  }
  std::int64_t count;
};

std::unique_ptr<data::DataLoader> reader_of(std::int64_t size, std::int64_t batch_size, int world) {
  Samples order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(i);
  return std::make_unique<data::DataLoader>(std::make_shared<Ragged>(size), [=](std::int64_t) {
    return data::dispatch_order(data::in_batches(order, batch_size), batch_size, world);
  });
}

void ranks(int world, const std::function<void(const comm::ProcessGroup&)>& f) {
  comm::run_ranks(world, {.deadline = std::chrono::minutes(1)}, f);
}

}  // namespace

TEST_CASE("each rank gets its batches, epoch after epoch") {
  for (const int world : {1, 2, 4}) {
    for (const std::int64_t size : {0, 1, 21}) {
      ranks(world, [&](const comm::ProcessGroup& group) {
        launch::Dispatcher batches(group, group.rank() == 0 ? reader_of(size, 3, world) : nullptr);
        Samples order;
        for (std::int64_t i = 0; i < size; ++i) order.push_back(i);
        const data::Batches mine =
            data::dispatched(data::in_batches(order, 3), 3, {group.rank(), world});
        for (int epoch = 0; epoch < 2; ++epoch) {
          data::Batches got;
          while (const auto batch = batches.next()) {
            got.push_back(batch->x.to_vector<std::int64_t>());
            CHECK(!batch->y.defined());
            const Samples& indices = got.back();
            CHECK((*batch)["mask"].shape() ==
                  Shape{std::ssize(indices), *std::max_element(indices.begin(), indices.end())});
            CHECK((*batch)["half"].dtype() == DType::bf16);
          }
          CHECK(got == mine);
        }
      });
    }
  }
}

TEST_CASE("what it refuses, and the reader's error is everybody's") {
  check_has(error_of([] {
              ranks(2, [](const comm::ProcessGroup& group) {
                launch::Dispatcher(group, reader_of(4, 2, 2));
              });
            }),
            "rank 1 has a reader; rank 0 reads, and no other");
  check_has(error_of([] { launch::Dispatcher(comm::ProcessGroup::alone(), nullptr); }),
            "rank 0 has no reader");
  check_has(error_of([] {
              ranks(2, [](const comm::ProcessGroup& group) {
                launch::Dispatcher batches(group, group.rank() == 0 ? reader_of(5, 2, 2) : nullptr);
                const std::string message = error_of([&] { batches.next(); });
                check_has(message, "[data] sample 0 (batch 0 of epoch 0): no such file");
                throw Error(message);
              });
            }),
            "no such file");
  // A plan for other ranks than there are.
  check_has(error_of([] {
              ranks(2, [](const comm::ProcessGroup& group) {
                launch::Dispatcher batches(group, group.rank() == 0 ? reader_of(2, 3, 1) : nullptr);
                batches.next();
              });
            }),
            "the epoch ended after 1 of 2 ranks had a batch");
}

TEST_CASE("a rank receives its share and little else") {
  // What comes, of messages of this rank.
  struct Counting : comm::ThreadsTransport {
    using comm::ThreadsTransport::ThreadsTransport;
    comm::Ticket post(comm::Channel channel, std::span<const comm::Message> round) override {
      for (const comm::Message& message : round) {
        if (message.direction == comm::Direction::recv) received += message.bytes;
      }
      return comm::ThreadsTransport::post(channel, round);
    }
    std::size_t received = 0;
  };
  constexpr int world = 3;
  const auto switchboard = std::make_shared<comm::Switchboard>(world);
  const auto board = comm::Board::in_memory(world);
  std::vector<std::thread> threads;
  std::vector<std::size_t> received(world), share(world), batches(world);
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank, at = static_cast<std::size_t>(rank)] {
      auto transport = std::make_unique<Counting>(switchboard, rank);
      const Counting& counting = *transport;
      auto control = std::make_unique<comm::Control>(board, rank, std::vector<int>{0, 1, 2},
                                                     std::vector<comm::Peer>{});
      const comm::ProcessGroup group = comm::make_group(std::move(transport), std::move(control),
                                                        std::make_shared<comm::Engine>(true), {});
      launch::Dispatcher dispatcher(group, rank == 0 ? reader_of(301, 50, world) : nullptr);
      while (const auto batch = dispatcher.next()) {
        ++batches[at];
        for (const Tensor& tensor : {batch->x, (*batch)["mask"], (*batch)["half"]}) {
          share[at] += tensor.view().bytes();
        }
      }
      received[at] = counting.received;
      group.barrier().wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(received[0] <= 512 * (batches[0] + 1));
  for (const std::size_t rank : {1, 2}) {
    CHECK(share[rank] > 50000);
    CHECK(received[rank] >= share[rank]);
    CHECK(received[rank] <= share[rank] + 512 * (batches[rank] + 1));  // names and shapes
  }
}
