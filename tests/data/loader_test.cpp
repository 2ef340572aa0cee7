// SPDX-License-Identifier: Apache-2.0
// The loader: the same batches whatever the number of workers, bounded prefetch, errors that keep
// their words, and an end at any moment.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/data/loader.h>
#include <peal/data/synthetic_digits.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

using peal::data::Batch;
using peal::data::DataLoader;
using peal::data::Dataset;
using peal::data::DistributedSampler;
using peal::data::LoaderOptions;
using Samples = std::vector<std::int64_t>;

namespace {

// Sample i is the number i; `visit` sees every batch's first index, on the thread that makes it.
struct Numbers : Dataset {
  explicit Numbers(std::int64_t n, std::function<void(std::int64_t)> f = nullptr)
      : count(n), visit(std::move(f)) {}
  std::int64_t size() const override { return count; }
  Batch get(std::span<const std::int64_t> indices) const override {
    if (visit) visit(indices.front());
    const Samples values(indices.begin(), indices.end());
    const peal::Tensor x =
        peal::Tensor::from(values, {static_cast<std::int64_t>(values.size())}, peal::Device{});
    return {x, x};
  }
  std::int64_t count;
  std::function<void(std::int64_t)> visit;
};

std::shared_ptr<DistributedSampler> in_order(std::int64_t size) {
  return std::make_shared<DistributedSampler>(size, 1, 0,
                                              peal::data::ShardOptions{.shuffle = false});
}

std::vector<Samples> epoch_of(DataLoader& loader) {
  std::vector<Samples> batches;
  for (const Batch& batch : loader) batches.push_back(batch.x.to_vector<std::int64_t>());
  return batches;
}

void pause(int microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

}  // namespace

TEST_CASE("batches come in order and do not depend on workers or prefetch") {
  const auto uneven = [](std::int64_t first) { pause(static_cast<int>(first * 7919 % 300)); };
  const auto numbers = std::make_shared<Numbers>(103, uneven);
  const auto sampler = std::make_shared<DistributedSampler>(103, 3, 1);
  DataLoader reference(numbers, sampler, {.batch_size = 4});
  const Samples indices = sampler->indices();
  const auto expected = epoch_of(reference);
  Samples joined;
  for (const Samples& batch : expected) joined.insert(joined.end(), batch.begin(), batch.end());
  CHECK(joined == indices);
  CHECK(std::ssize(expected) == reference.size());
  CHECK(expected.back().size() == 3);  // 35 samples
  for (const int workers : {1, 2, 5, 64}) {
    for (const int prefetch : {1, 2, 7}) {
      DataLoader loader(numbers, sampler,
                        {.batch_size = 4, .workers = workers, .prefetch = prefetch});
      CAPTURE(workers);
      CAPTURE(prefetch);
      sampler->set_epoch(0);
      CHECK(epoch_of(loader) == expected);
    }
  }
}

TEST_CASE("each epoch asks the sampler anew") {
  const auto numbers = std::make_shared<Numbers>(20);
  const auto sampler = std::make_shared<DistributedSampler>(20, 2, 0);
  for (const int workers : {0, 2}) {
    DataLoader loader(numbers, sampler, {.batch_size = 10, .workers = workers});
    const auto check_next = [&] {
      const Samples indices = sampler->indices();
      CHECK(epoch_of(loader)[0] == indices);
    };
    sampler->set_epoch(0);
    const auto first = epoch_of(loader);
    CHECK(epoch_of(loader) != first);  // the next
    sampler->set_epoch(0);
    CHECK(epoch_of(loader) == first);
    sampler->set_epoch(1);
    check_next();
    sampler->resume(1, 8);
    check_next();
    CHECK(loader.size() == 1);
  }
}

TEST_CASE("next() goes through epoch after epoch") {
  for (const int workers : {0, 3}) {
    DataLoader loader(std::make_shared<Numbers>(5), in_order(5),
                      {.batch_size = 2, .workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      Samples sizes, taken;
      while (auto batch = loader.next()) {
        sizes.push_back(batch->x.size(0));
        taken.push_back(loader.taken());
      }
      CHECK(sizes == Samples{2, 2, 1});
      CHECK(taken == Samples{2, 4, 5});
    }
  }
}

TEST_CASE("drop_last, and epochs without a batch") {
  for (const int workers : {0, 2}) {
    DataLoader drop(std::make_shared<Numbers>(5), in_order(5),
                    {.batch_size = 2, .workers = workers, .drop_last = true});
    CHECK(epoch_of(drop) == std::vector<Samples>{{0, 1}, {2, 3}});
    CHECK(drop.size() == 2);
    DataLoader short_of_one(std::make_shared<Numbers>(5), in_order(5),
                            {.batch_size = 6, .workers = workers, .drop_last = true});
    CHECK(epoch_of(short_of_one).empty());
    DataLoader none(std::make_shared<Numbers>(0), in_order(0),
                    {.batch_size = 2, .workers = workers});
    CHECK(epoch_of(none).empty());
    CHECK(!none.next());
  }
}

TEST_CASE("prefetch is bounded: no batch is begun before there is room for it") {
  std::atomic<std::int64_t> handed_out{0}, furthest{0};
  const int workers = 3, prefetch = 2;
  const auto numbers = std::make_shared<Numbers>(200, [&](std::int64_t batch) {
    const std::int64_t ahead = batch - handed_out.load();
    std::int64_t seen = furthest.load();
    while (ahead > seen && !furthest.compare_exchange_weak(seen, ahead)) {
    }
  });
  DataLoader loader(numbers, in_order(200),
                    {.batch_size = 1, .workers = workers, .prefetch = prefetch});
  for (const Batch& batch : loader) {
    handed_out = batch.x.item<std::int64_t>();
    if (handed_out % 50 == 0) pause(3000);  // let the workers run as far as they can
  }
  // One more than the bound, because the loader counts a batch as handed out just before we do.
  CHECK(furthest.load() <= workers * prefetch + 1);
  CHECK(furthest.load() >= 1);
}

TEST_CASE("an error reaches the consumer in its place, with its sample, its words and itself") {
  struct Odd : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (const int workers : {0, 1, 4}) {
    const auto numbers = std::make_shared<Numbers>(40, [](std::int64_t first) {
      if (first == 20) throw Odd("sample 20 is odd");
    });
    DataLoader loader(numbers, in_order(40), {.batch_size = 4, .workers = workers});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Samples firsts;
      const auto run = [&] {
        for (const Batch& batch : loader) firsts.push_back(batch.x.to_vector<std::int64_t>()[0]);
      };
      const char* words = "[data] sample 20 (batch 5 of epoch 0): sample 20 is odd";
      CHECK_THROWS_WITH_AS(run(), words, peal::Error);
      CHECK(firsts == Samples{0, 4, 8, 12, 16});
      try {
        loader.next();  // no epoch ends early in silence
        FAIL("the error was forgotten");
      } catch (const peal::Error& error) {
        CHECK(std::string(error.what()) == words);
        CHECK_THROWS_WITH_AS(std::rethrow_if_nested(error), "sample 20 is odd", Odd);
      }
    }
  }
}

TEST_CASE("the sample that cannot be had is found within its batch") {
  struct Hole : Numbers {
    using Numbers::Numbers;
    Batch get(std::span<const std::int64_t> indices) const override {
      for (const std::int64_t index : indices) {
        if (index == 22) throw std::runtime_error("its file is gone");
      }
      return Numbers::get(indices);
    }
  };
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<Hole>(40), {.batch_size = 8, .workers = workers});
    CHECK(loader.next());
    CHECK(loader.next());
    CHECK_THROWS_WITH_AS(loader.next(), "[data] sample 22 (batch 2 of epoch 0): its file is gone",
                         peal::Error);
  }
}

TEST_CASE("a sample whose error has no words, or is of no known type, is named all the same") {
  struct Silent : Numbers {
    using Numbers::Numbers;
    Batch get(std::span<const std::int64_t> indices) const override {
      for (const std::int64_t index : indices) {
        if (index == 2) throw std::runtime_error("");
        if (index == 5) throw 42;
        if (index == 7) throw std::runtime_error("its file is gone");
      }
      return Numbers::get(indices);
    }
  };
  for (const std::int64_t batch_size : {1, 4, 8}) {
    DataLoader loader(std::make_shared<Silent>(8), {.batch_size = batch_size});
    const auto all = [&] { epoch_of(loader); };
    const std::string batch = std::to_string(2 / batch_size);
    const std::string words =
        "[data] sample 2 (batch " + batch + " of epoch 0): an exception without words";
    CHECK_THROWS_WITH_AS(all(), words.c_str(), peal::Error);
  }
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<Silent>(8),
                      [](std::int64_t) {
                        return peal::data::Batches{{3}, {4, 5, 6}};
                      },
                      {.workers = workers});
    CHECK(loader.next());
    CHECK_THROWS_WITH_AS(loader.next(),
                         "[data] sample 5 (batch 1 of epoch 0): an exception that is no "
                         "std::exception",
                         peal::Error);
  }
}

TEST_CASE("a loader can go at any moment") {
  for (int batches = 0; batches < 12; ++batches) {
    std::atomic<int> made{0};
    {
      DataLoader loader(std::make_shared<Numbers>(100000, [&](std::int64_t) { ++made; }),
                        in_order(100000), {.batch_size = 1, .workers = 4, .prefetch = 2});
      for (int i = 0; i < batches; ++i) CHECK(loader.next());
    }
    CHECK(made.load() <= batches + 8);
  }
}

TEST_CASE("begin() in the middle of an epoch opens a new one") {
  DataLoader loader(std::make_shared<Numbers>(50), in_order(50), {.batch_size = 5, .workers = 2});
  for (const Batch& batch : loader) {
    if (batch.x.to_vector<std::int64_t>()[0] == 15) break;
  }
  CHECK(loader.taken() == 20);
  CHECK(epoch_of(loader).size() == 10);
}

TEST_CASE("workers inherit the context") {
  std::atomic<int> strangers{0};
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> elsewhere{false};
  const auto numbers = std::make_shared<Numbers>(10, [&](std::int64_t) {
    strangers += peal::context().log_tag == "rank 3" ? 0 : 1;
    if (std::this_thread::get_id() != caller) elsewhere = true;
  });
  peal::context().log_tag = "rank 3";
  DataLoader loader(numbers, in_order(10), {.batch_size = 1, .workers = 2});
  CHECK(epoch_of(loader).size() == 10);
  peal::context().log_tag.clear();
  CHECK(strangers.load() == 0);
  CHECK(elsewhere.load());
}

TEST_CASE("ranks as threads: every sample of an epoch once, from one data set") {
  const auto digits = peal::data::synthetic_digits(331, 0);
  std::vector<std::vector<float>> sums(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto sampler = std::make_shared<DistributedSampler>(
          digits->size(), 4, rank, peal::data::ShardOptions{.seed = 1, .exact = true});
      DataLoader loader(digits, sampler, {.batch_size = 16, .workers = 2});
      for (const Batch& batch : loader) {
        const auto x = batch.x.to_vector<float>();
        for (std::size_t at = 0; at < x.size(); at += 784) {
          float sum = 0;
          for (std::size_t i = 0; i < 784; ++i) sum += x[at + i];
          sums[static_cast<std::size_t>(rank)].push_back(sum);
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::multiset<float> seen, expected;
  for (const auto& mine : sums) seen.insert(mine.begin(), mine.end());
  for (std::int64_t i = 0; i < digits->size(); ++i) {
    const auto x = digits->get(Samples{i}).x.to_vector<float>();
    float sum = 0;
    for (const float value : x) sum += value;
    expected.insert(sum);
  }
  CHECK(seen == expected);
}

TEST_CASE("bad options are errors") {
  const auto make = [](LoaderOptions options) {
    return [options] { DataLoader(std::make_shared<Numbers>(1), in_order(1), options); };
  };
  CHECK_THROWS_WITH_AS(make({.batch_size = 0})(),
                       "[data] loader: expected a batch_size of at least 1, got 0", peal::Error);
  CHECK_THROWS_WITH_AS(make({.workers = -1})(),
                       "[data] loader: expected workers to be at least 0, got -1", peal::Error);
  CHECK_THROWS_WITH_AS(make({.prefetch = 0})(),
                       "[data] loader: expected a prefetch of at least 1, got 0", peal::Error);
  CHECK_THROWS_WITH_AS(DataLoader(nullptr, in_order(1)),
                       "[data] loader: expected a data set, got none", peal::Error);
  CHECK_THROWS_WITH_AS(
      DataLoader(std::make_shared<Numbers>(1), std::shared_ptr<DistributedSampler>()),
      "[data] loader: expected a data set and a sampler, got none", peal::Error);
  CHECK_THROWS_WITH_AS(DataLoader(std::make_shared<Numbers>(1), in_order(1), {.shuffle = true}),
                       "[data] loader: its sampler has the say about order and shard: leave out "
                       "shuffle, shard, way and exact",
                       peal::Error);
  CHECK_THROWS_WITH_AS(DataLoader(std::make_shared<Numbers>(1), {.shard = peal::Place{2, 2}}),
                       "[data] loader: expected a shard with a rank below its world, got rank 2 "
                       "of 2",
                       peal::Error);
  CHECK_THROWS_WITH_AS(DataLoader(std::make_shared<Numbers>(1), {.exact = true}),
                       "[data] loader: exact says how ranks share the samples, but there is no "
                       "shard; name one (.shard = job.place())",
                       peal::Error);
}
