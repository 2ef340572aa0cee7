// SPDX-License-Identifier: Apache-2.0
// The loader's copies ahead, on a simulated device whose streams run as late as they may: a batch
// that is used before its copy, or whose memory goes too early, has other numbers.
#include <doctest/doctest.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/data/loader.h>

#include <stdexcept>
#include <string>
#include <vector>

using peal::Device;
using peal::DeviceType;
using peal::Tensor;
using peal::data::Batch;
using peal::data::DataLoader;

namespace {

// Sample i: x [500] of i + place / 1000, y i, twice [1] 2 i; sample `bad` cannot be had.
struct Rows : peal::data::Dataset {
  std::int64_t size() const override { return 43; }
  Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x, twice;
    std::vector<std::int64_t> y(indices.begin(), indices.end());
    for (const std::int64_t index : indices) {
      if (index == bad) throw std::runtime_error("its file is gone");
      for (int at = 0; at < 500; ++at) {
        x.push_back(static_cast<float>(index) + static_cast<float>(at) / 1000);
      }
      twice.push_back(static_cast<float>(2 * index));
    }
    const auto count = std::ssize(indices);
    return {Tensor::from(x, {count, 500}, Device{}),
            Tensor::from(y, {count}, Device{}),
            {{"twice", Tensor::from(twice, {count, 1}, Device{})}}};
  }
  std::int64_t bad = -1;
};

const Device device{DeviceType::cuda, 0};

}  // namespace

TEST_CASE("batches are on the device, whole, and those of the CPU") {
  for (const int workers : {0, 2}) {
    DataLoader here(std::make_shared<Rows>(), {.batch_size = 5, .shuffle = true, .seed = 3});
    DataLoader there(
        std::make_shared<Rows>(),
        {.batch_size = 5, .shuffle = true, .seed = 3, .workers = workers, .device = device});
    for (const bool own_stream : {false, true}) {
      const peal::StreamGuard guard(own_stream ? peal::Stream::create(device)
                                               : peal::current_stream(device));
      std::vector<Tensor> sums, ys, expected, classes;
      std::int64_t taken = 0;
      for (const Batch& batch : there) {
        CHECK(batch.x.device() == device);
        CHECK(batch.size() == batch.y.size(0));
        taken = there.taken();
        sums.push_back(batch.x + batch["twice"]);  // in the queue when the batch goes
        ys.push_back(batch.y * batch.y);
      }
      for (const Batch& batch : here) {
        expected.push_back(batch.x + batch["twice"]);
        classes.push_back(batch.y * batch.y);
      }
      REQUIRE(sums.size() == 9);
      REQUIRE(expected.size() == 9);
      CHECK(taken == 43);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        CHECK(sums[i].to_vector<float>() == expected[i].to_vector<float>());
        CHECK(ys[i].to_vector<std::int64_t>() == classes[i].to_vector<std::int64_t>());
      }
    }
  }
}

TEST_CASE("an error comes in its place, though its batch was made ahead") {
  const auto rows = std::make_shared<Rows>();
  rows->bad = 21;
  for (const int workers : {0, 2}) {
    DataLoader loader(rows, {.batch_size = 10, .workers = workers, .device = device});
    for (int batch = 0; batch < 2; ++batch) {
      CHECK(loader.next()->y.to_vector<std::int64_t>()[9] == batch * 10 + 9);
      CHECK(loader.consumed() == batch * 10 + 10);
    }
    for (int again = 0; again < 2; ++again) {
      CHECK_THROWS_WITH(loader.next(), "[data] sample 21 (batch 2 of epoch 0): its file is gone");
    }
  }
}

TEST_CASE("a loader can go while a copy is under way") {
  for (int batches = 0; batches < 3; ++batches) {
    DataLoader loader(std::make_shared<Rows>(), {.batch_size = 8, .device = device});
    for (int i = 0; i < batches; ++i) CHECK(loader.next());
    loader.set_epoch(4);
    if (batches > 0) CHECK(loader.next()->y.to_vector<std::int64_t>()[0] == 0);
  }
}
