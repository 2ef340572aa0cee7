// SPDX-License-Identifier: Apache-2.0
// A place far within a huge epoch is taken up without making the epoch: neither its batches nor its
// order. What is made is counted, in calls and in bytes.
#include "drawn.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {
std::atomic<std::size_t> allocated{0};
}  // namespace

// Not inlined, or GCC takes them for others' counterparts.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocated += bytes;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using peal::data::LoaderOptions;
using peal::data::Order;
using peal::data::PlannedBatches;
using peal::data::Way;

TEST_CASE("batch 1000000 of 100 million samples comes without the epoch before or after it") {
  const std::int64_t size = 100'000'000, batch_size = 32, far = 1'000'000;
  const auto set = std::make_shared<Drawn>(size);
  for (const bool shuffle : {false, true}) {
    const Order order = peal::data::epoch_order(size, {.shuffle = shuffle, .seed = 5});
    Samples expected;
    for (std::int64_t i = 0; i < batch_size; ++i) expected.push_back(order[far * batch_size + i]);
    const auto sampler = std::make_shared<peal::data::DistributedSampler>(
        size, 1, 0, peal::data::ShardOptions{.shuffle = shuffle, .seed = 5});
    for (const int workers : {0, 2}) {
      for (const int how : {0, 1, 2}) {
        CAPTURE(how);
        LoaderOptions options{.batch_size = batch_size, .seed = 5, .workers = workers};
        if (how > 0) options.shuffle = shuffle;
        if (how == 2) {
          options.shard = Place{};
          options.way = Way::batches;
        }
        sampler->set_epoch(0);
        const std::size_t before = allocated;
        DataLoader loader = how == 0 ? DataLoader(set, sampler, options) : DataLoader(set, options);
        CHECK(loader.size() == size / batch_size);
        loader.skip_first_batches(far);
        CHECK(loader.has_next());
        CHECK(loader.size() == size / batch_size - far);
        CHECK(loader.next()->x.to_vector<std::int64_t>() == expected);
        CHECK(allocated - before < 1 << 20);
      }
    }
  }
}

TEST_CASE("of a plan that makes batches one by one, those are made that are asked for") {
  for (const int workers : {0, 3}) {
    std::atomic<std::int64_t> made{0};
    DataLoader loader(std::make_shared<Drawn>(std::int64_t{1} << 40),
                      [&](std::int64_t epoch) {
                        return PlannedBatches(std::int64_t{1} << 35,
                                              [&made, epoch](std::int64_t k) {
                                                ++made;
                                                return Samples{k + epoch, k + 1};
                                              });
                      },
                      {.workers = workers});
    loader.skip_first_batches(std::int64_t{1} << 34);
    CHECK(made.load() == 0);
    CHECK(loader.next()->x.to_vector<std::int64_t>() ==
          Samples{std::int64_t{1} << 34, (std::int64_t{1} << 34) + 1});
    CHECK(made.load() >= 1);
    CHECK(made.load() <= 1 + workers * 2 + 1);
    const auto state = loader.state_dict();
    loader.load_state_dict(state);
    CHECK(loader.next()->x.to_vector<std::int64_t>()[0] == (std::int64_t{1} << 34) + 1);
  }
}
