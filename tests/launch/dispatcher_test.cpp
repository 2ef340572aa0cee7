// SPDX-License-Identifier: Apache-2.0
// One rank reads for all: every rank gets what the plan gives it, whatever the shapes, and no more.
#include <doctest/doctest.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/tests/errors.h>

#include <chrono>
#include <memory>
#include <string>
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
