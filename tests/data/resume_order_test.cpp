// SPDX-License-Identifier: Apache-2.0
// What a loader's or a sampler's state says of its order: a state of other draws, sizes, weights or
// augmentation is refused within an epoch.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/data/random_sampler.h>
#include <peal/data/weighted.h>
#include <peal/tests/errors.h>

#include <functional>
#include <memory>
#include <string>

using peal::data::LoaderOptions;
using peal::testing::check_has;
using peal::testing::error_of;

namespace {

using Make = std::function<std::unique_ptr<DataLoader>()>;

// What the second says of a state of the first, which has seen so many batches.
std::string said_of(const Make& first, const Make& second, int batches = 2) {
  const auto saved = first(), loader = second();
  for (int k = 0; k < batches; ++k) saved->next();
  const std::int64_t before = loader->consumed();
  const std::string said = error_of([&] { loader->load_state_dict(saved->state_dict()); });
  if (said != "nothing") CHECK(loader->consumed() == before);
  return said;
}

}  // namespace

TEST_CASE("a state of other draws is refused within an epoch") {
  using peal::data::RandomSamplerOptions;
  const auto drawn = [](std::int64_t size, const RandomSamplerOptions& options) -> Make {
    return [=] {
      return std::make_unique<DataLoader>(
          std::make_shared<Drawn>(size), std::make_shared<peal::data::RandomSampler>(size, options),
          LoaderOptions{.batch_size = 2});
    };
  };
  const Make mine = drawn(10, {.seed = 1});
  CHECK(said_of(mine, mine) == "nothing");
  check_has(said_of(mine, drawn(10, {.seed = 2})), "seed: expected 2, as of this sampler, got 1");
  check_has(said_of(mine, drawn(10, {.num_samples = 20, .seed = 1})),
            "num_samples: expected 20, as of this sampler, got 10");
  check_has(said_of(mine, drawn(10, {.replacement = true, .seed = 1})),
            "replacement: expected 1, as of this sampler, got 0");
  check_has(said_of(mine, drawn(11, {.num_samples = 10, .seed = 1})),
            "samples: expected 11, as of this sampler, got 10");
  CHECK(said_of(mine, drawn(11, {.replacement = true, .num_samples = 4, .seed = 1}), 0) ==
        "nothing");
  const auto weighted = [](std::uint64_t seed, double first = 1) -> Make {
    return [=] {
      std::vector<double> weights(10, 1.0);
      weights[0] = first;
      return std::make_unique<DataLoader>(
          std::make_shared<Drawn>(10),
          std::make_shared<peal::data::WeightedRandomSampler>(
              weights, 10, peal::data::WeightedOptions{.seed = seed}),
          LoaderOptions{.batch_size = 2});
    };
  };
  check_has(said_of(weighted(1), weighted(2)), "seed: expected 2, as of this sampler, got 1");
  CHECK(said_of(weighted(1), weighted(1)) == "nothing");
  check_has(said_of(weighted(1), weighted(1, 1.5)), "weights_digest: expected ");
  CHECK(said_of(weighted(1), weighted(1, 1.5), 0) == "nothing");
  // States of before do not know the weights.
  const auto saved = weighted(1)(), later = weighted(1, 1.5)();
  saved->next();
  auto state = saved->state_dict();
  CHECK(std::erase_if(state, [](const auto& entry) { return entry.first == "weights_digest"; }) ==
        1);
  later->load_state_dict(state);
  CHECK(later->consumed() == 2);
}

TEST_CASE("a state of as many samples and of an order that is drawn alike is asked for") {
  using peal::data::Way;
  const auto make = [](std::int64_t size, const LoaderOptions& options) -> Make {
    return [=] { return std::make_unique<DataLoader>(std::make_shared<Drawn>(size), options); };
  };
  const LoaderOptions drawn{.batch_size = 10, .shuffle = true, .seed = 1};
  const LoaderOptions as_they_lie{.batch_size = 10, .seed = 1};
  const Make mine = make(100, drawn);
  check_has(said_of(mine, make(101, drawn), 5),
            "samples: expected 101, as of this loader, got 100");
  check_has(said_of(mine, make(40, drawn), 5), "samples: expected 40, as of this loader, got 100");
  CHECK(said_of(mine, make(101, drawn), 0) == "nothing");
  check_has(said_of(mine, make(100, as_they_lie)), "seed: this loader draws no order, got 1");
  check_has(said_of(make(100, as_they_lie), mine), "seed: expected 1, as of this loader, got none");
  CHECK(said_of(mine, make(100, as_they_lie), 0) == "nothing");
  CHECK(said_of(make(100, as_they_lie), mine, 0) == "nothing");
  LoaderOptions dealt = drawn;
  dealt.shard = Place{0, 1};
  for (const Way way : {Way::batches, Way::contiguous, Way::split}) {
    dealt.way = way;
    check_has(said_of(make(100, dealt), make(101, dealt)), "samples: expected 101, as of this");
    CHECK(said_of(make(100, dealt), make(101, dealt), 0) == "nothing");
    LoaderOptions lying = dealt;
    lying.shuffle = false;
    CHECK(said_of(make(100, lying), make(100, dealt), 0) == "nothing");
  }
  const auto by_sampler = [](std::int64_t size, bool shuffle) -> Make {
    return [=] {
      return std::make_unique<DataLoader>(
          std::make_shared<Drawn>(size),
          std::make_shared<peal::data::DistributedSampler>(
              size, 1, 0, peal::data::ShardOptions{.shuffle = shuffle, .seed = 1}),
          LoaderOptions{.batch_size = 10});
    };
  };
  for (const bool shuffle : {false, true}) {
    check_has(said_of(by_sampler(100, shuffle), by_sampler(101, shuffle)),
              "samples: expected 101, as of this sampler, got 100");
    check_has(said_of(by_sampler(100, shuffle), by_sampler(100, !shuffle)),
              shuffle ? "seed: this sampler draws no order" : "seed: expected 1");
  }
  // States of before, which say nothing of the order: they go on where there is such a place.
  const auto old = [](std::int64_t consumed) {
    return peal::NamedTensors{{"epoch", Tensor::scalar(std::int64_t{0})},
                              {"consumed", Tensor::scalar(consumed)}};
  };
  for (const Make& loader : {mine, by_sampler(100, true)}) {
    const auto taken = loader();
    taken->load_state_dict(old(50));
    CHECK(taken->size() == 5);
    check_has(error_of([&] { taken->load_state_dict(old(101)); }),
              "an epoch of 100 samples cannot be taken up after 101");
    CHECK(taken->consumed() == 50);
  }
}

TEST_CASE("what is drawn to augment goes on where no order is drawn") {
  const auto set = std::make_shared<Drawn>(6);
  const auto plan = [](std::int64_t) { return peal::data::in_batches(up_to(6), 2); };
  const std::vector<Make> ways{
      [&] { return std::make_unique<DataLoader>(set, LoaderOptions{.batch_size = 2}); },
      [&] {
        return std::make_unique<DataLoader>(set,
                                            LoaderOptions{.batch_size = 2, .shard = Place{0, 1}});
      },
      [&] {
        return std::make_unique<DataLoader>(set, std::make_shared<peal::data::SequentialSampler>(6),
                                            LoaderOptions{.batch_size = 2});
      },
      [&] { return std::make_unique<DataLoader>(set, plan); }};
  for (const Make& make : ways) {
    peal::manual_seed(1);
    const auto saved = make();
    saved->next();
    const auto state = saved->state_dict();
    peal::manual_seed(2);
    const auto later = make();
    later->load_state_dict(state);
    CHECK(later->next()->y.to_vector<std::int64_t>() == saved->next()->y.to_vector<std::int64_t>());
  }
  const auto named = [&](std::uint64_t seed) -> Make {
    return [&set, seed] {
      return std::make_unique<DataLoader>(set, std::make_shared<peal::data::SequentialSampler>(6),
                                          LoaderOptions{.batch_size = 2, .seed = seed});
    };
  };
  check_has(said_of(named(1), named(2)), "augmentation: expected 2, ");
}
