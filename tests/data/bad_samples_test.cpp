// SPDX-License-Identifier: Apache-2.0
// Samples that fail: named, counted and replaced, alike for any number of workers and wherever an
// epoch is taken up, up to as many as are allowed.
#include <doctest/doctest.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/data/random_sampler.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "drawn.h"

#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <utility>

using peal::data::BadSample;
using peal::testing::check_has;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::stderr_of;

namespace {

struct Broken : Drawn {
  Broken(std::int64_t n, std::set<std::int64_t> which) : Drawn(n), bad(std::move(which)) {}
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
    for (const std::int64_t index : indices) {
      if (bad.contains(index)) throw std::runtime_error("no image");
    }
    return Drawn::augmented(indices, draws);
  }
  std::set<std::int64_t> bad;
};

std::shared_ptr<const Broken> broken(std::int64_t n, std::set<std::int64_t> which) {
  return std::make_shared<Broken>(n, std::move(which));
}

// What the rule says: the next good one of the plan, or else the last good one before.
Samples mended(const Samples& plan, const std::set<std::int64_t>& bad) {
  Samples all = plan;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!bad.contains(plan[i])) continue;
    std::size_t at = i;
    while (at < plan.size() && bad.contains(plan[at])) ++at;
    if (at == plan.size()) {
      at = i;
      while (bad.contains(plan[at])) --at;
    }
    all[i] = plan[at];
  }
  return all;
}

}  // namespace

TEST_CASE("bad samples are replaced by their neighbours, whatever the workers and the world") {
  for (const std::int64_t n : {5, 12, 29}) {
    for (const std::set<std::int64_t>& bad :
         std::vector<std::set<std::int64_t>>{{}, {0}, {4}, {1, 2, 3}, {0, 4}}) {
      for (const int world : {1, 2, 3}) {
        for (int rank = 0; rank < world; ++rank) {
          const auto batches = [&](const std::set<std::int64_t>& which, int workers,
                                   std::int64_t skipped) {
            DataLoader loader(broken(n, which), {.batch_size = 3,
                                                 .shuffle = true,
                                                 .shard = Place{rank, world},
                                                 .seed = 2,
                                                 .workers = workers,
                                                 .max_bad_samples = 5});
            if (skipped > 0) loader.skip_first_batches(skipped);
            Samples all;
            stderr_of([&] { all = flat(epoch_of(loader)); });
            return std::pair(all, std::ssize(loader.bad_samples()));
          };
          CAPTURE(n);
          CAPTURE(world);
          CAPTURE(rank);
          const Samples plan = batches({}, 0, 0).first;
          const auto of_plan = [&](std::int64_t from) {
            return std::count_if(plan.begin() + from, plan.end(),
                                 [&](std::int64_t sample) { return bad.contains(sample); });
          };
          if (of_plan(0) == std::ssize(plan)) continue;
          const Samples expected = mended(plan, bad);
          for (const int workers : {0, 1, 4}) {
            const auto [all, count] = batches(bad, workers, 0);
            CHECK(all == expected);
            CHECK(count == of_plan(0));
          }
          if (plan.size() <= 3) continue;
          const auto [rest, count] = batches(bad, 2, 1);
          CHECK(rest == Samples(expected.begin() + 3, expected.end()));
          CHECK(count == of_plan(3));
        }
      }
    }
  }
}

TEST_CASE("where nothing follows, what came before an epoch was taken up stands in") {
  const auto rest_of = [](const auto& make, std::int64_t epoch, std::int64_t consumed) {
    Samples rest;
    stderr_of([&] {
      const std::unique_ptr<DataLoader> loader = make();
      loader->resume(epoch, consumed);
      rest = flat(epoch_of(*loader));
    });
    return rest;
  };
  const auto set = broken(7, {6});
  for (const int workers : {0, 2}) {
    const peal::data::LoaderOptions options{
        .batch_size = 3, .workers = workers, .max_bad_samples = 1};
    const auto of_options = [&] { return std::make_unique<DataLoader>(set, options); };
    CHECK(rest_of(of_options, 1, 6) == Samples{5});
    CHECK(rest_of(of_options, 1, 3) == Samples{3, 4, 5, 5});
    const auto of_sampler = [&] {
      return std::make_unique<DataLoader>(set, std::make_shared<peal::data::SequentialSampler>(7),
                                          options);
    };
    CHECK(rest_of(of_sampler, 1, 6) == Samples{5});
    const auto of_plan = [&] {
      return std::make_unique<DataLoader>(
          set,
          [](std::int64_t) {
            return Batches{{1, 0}, {6, 2}, {}, {6}};
          },
          peal::data::LoaderOptions{.workers = workers, .max_bad_samples = 2});
    };
    CHECK(rest_of(of_plan, 0, 3) == Samples{2});
    // In another world it is the order of all ranks, at this rank's distance.
    for (const int rank : {0, 1}) {
      const auto of_two = [&] {
        auto sharded = options;
        sharded.shard = Place{rank, 2};
        return std::make_unique<DataLoader>(set, sharded);
      };
      CHECK(rest_of(of_two, 0, 6) == (rank == 0 ? Samples{4} : Samples{0}));
    }
    const auto of_way = [&] {
      return std::make_unique<DataLoader>(set,
                                          peal::data::LoaderOptions{.batch_size = 1,
                                                                    .shard = Place{0, 2},
                                                                    .way = peal::data::Way::batches,
                                                                    .workers = workers,
                                                                    .max_bad_samples = 1});
    };
    CHECK(rest_of(of_way, 0, 3) == Samples{4});
  }
}

TEST_CASE("the limit is of an epoch, wherever it is taken up") {
  const auto make = [](std::int64_t most) {
    return std::make_unique<DataLoader>(
        broken(12, {1, 4, 7}), peal::data::LoaderOptions{.batch_size = 3, .max_bad_samples = most});
  };
  const auto first = make(2), later = make(2), more = make(3), none = make(0);
  const std::string words =
      "[data] sample 7 (batch 2 of epoch 0): no image; it is bad sample 3 of this epoch, of which "
      "max_bad_samples lets 2 be";
  const std::string told = stderr_of([&] {
    first->next();
    first->next();
    const auto state = first->state_dict();
    later->load_state_dict(state);
    CHECK(error_of([&] { later->next(); }) == words);
    CHECK(error_of([&] { later->next(); }) == words);
    more->load_state_dict(state);
    CHECK(more->next()->x.to_vector<std::int64_t>() == Samples{6, 8, 8});
    CHECK(more->bad_samples().back().batch == 2);
    first->resume(first->epoch(), first->consumed());
    CHECK(error_of([&] { first->next(); }) == words);
    first->resume(0, 3);
    CHECK(first->next()->x.to_vector<std::int64_t>() == Samples{3, 5, 5});
    CHECK(first->bad_samples().size() == 2);
    first->set_epoch(0);  // the whole of it again
    first->next();
    CHECK(first->bad_samples().size() == 1);
    none->load_state_dict(state);
    CHECK(none->consumed() == 6);
    first->load_state_dict(none->state_dict());
    CHECK(error_of([&] { none->next(); }) == "[data] sample 7 (batch 2 of epoch 0): no image");
  });
  check_has(told, "[data] sample 7 (batch 2 of epoch 0): no image; sample 8 stands in for it");
}

TEST_CASE("a bad sample is named, with what stands in for it and its chance") {
  DataLoader loader(broken(6, {3}), {.batch_size = 2, .max_bad_samples = 1});
  Batches batches;
  std::vector<Samples> drawn;
  const std::string told = stderr_of([&] {
    for (const auto& [x, y] : loader) {
      batches.push_back(x.to_vector<std::int64_t>());
      drawn.push_back(y.to_vector<std::int64_t>());
    }
  });
  CHECK(batches == Batches{{0, 1}, {2, 4}, {4, 5}});
  CHECK(drawn[1][1] == drawn[2][0]);
  check_has(told, "[data] sample 3 (batch 1 of epoch 0): no image; sample 4 stands in for it");
  REQUIRE(loader.bad_samples().size() == 1);
  const BadSample& bad = loader.bad_samples()[0];
  CHECK(bad.sample == 3);
  CHECK(bad.replaced_by == 4);
  CHECK(bad.batch == 1);
  CHECK(bad.why == "no image");
  stderr_of([&] { epoch_of(loader); });
  CHECK(loader.bad_samples().size() == 1);  // of each epoch
}

TEST_CASE("one bad sample more than is allowed is an error, at the same batch for any workers") {
  for (const int workers : {0, 3}) {
    for (const std::int64_t allowed : {0, 1, 2}) {
      DataLoader loader(broken(12, {1, 4, 7}),
                        {.batch_size = 3, .workers = workers, .max_bad_samples = allowed});
      std::int64_t came = 0;
      std::string words;
      const std::string told = stderr_of([&] {
        words = error_of([&] {
          while (loader.next()) ++came;
        });
      });
      CAPTURE(words);
      CHECK(came == allowed);  // bad ones are in batches 0, 1 and 2
      check_has(words, peal::concat("[data] sample ", 1 + 3 * allowed, " (batch ", allowed,
                                    " of epoch 0): no image"));
      CHECK(contains(words, "max_bad_samples") == (allowed > 0));
      CHECK(error_of([&] { loader.next(); }) == words);
    }
  }
}

TEST_CASE("where nothing good is left, it is said") {
  DataLoader loader(broken(4, {0, 1, 2, 3}), {.batch_size = 2, .max_bad_samples = 9});
  check_has(error_of([&] { loader.next(); }),
            "[data] sample 0 (batch 0 of epoch 0) cannot be had, nor can 3 others that would stand "
            "in for it: no image");
  DataLoader few(broken(40, {0, 1, 2, 3, 4, 5, 6, 7}), {.batch_size = 2, .max_bad_samples = 3});
  check_has(error_of([&] { few.next(); }), "nor can 4 others");
}

TEST_CASE("a fault of a batch whose samples are good is none of a sample's") {
  struct Crowded : Drawn {
    using Drawn::Drawn;
    Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
      if (indices.size() > 1) throw std::runtime_error("too many");
      return Drawn::augmented(indices, draws);
    }
  };
  DataLoader loader(std::make_shared<Crowded>(4), {.batch_size = 2, .max_bad_samples = 9});
  check_has(error_of([&] { loader.next(); }),
            "batch 0 of epoch 0, each of whose samples can be had alone: too many");
}

TEST_CASE("a failure that passes is none of a sample's, and fails no batch") {
  struct Once : Drawn {
    using Drawn::Drawn;
    Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
      if (!std::exchange(failed, true)) throw std::runtime_error("not now");
      return Drawn::augmented(indices, draws);
    }
    mutable bool failed = false;
  };
  for (const std::int64_t most : {0, 2}) {
    DataLoader loader(std::make_shared<Once>(4), {.batch_size = 2, .max_bad_samples = most});
    CHECK(epoch_of(loader) == Batches{{0, 1}, {2, 3}});
    CHECK(loader.bad_samples().empty());
  }
}

TEST_CASE("that there is no memory is no fault of a sample") {
  struct Large : Drawn {
    using Drawn::Drawn;
    Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
      if (indices.back() == 3 && of_tensors) throw peal::OutOfMemory("none is left");
      if (indices.back() == 3) throw std::bad_alloc();
      return Drawn::augmented(indices, draws);
    }
    bool of_tensors = false;
  };
  for (const std::int64_t most : {0, 9}) {
    for (const int workers : {0, 2}) {
      const auto large = std::make_shared<Large>(4);
      for (const bool of_tensors : {false, true}) {
        large->of_tensors = of_tensors;
        DataLoader loader(large, {.batch_size = 2, .workers = workers, .max_bad_samples = most});
        loader.next();
        if (of_tensors) {
          CHECK_THROWS_AS(loader.next(), peal::OutOfMemory);
        } else {
          CHECK_THROWS_AS(loader.next(), std::bad_alloc);
        }
      }
    }
  }
}

TEST_CASE("a sample that stands in for another has no place in the order") {
  DataLoader loader(broken(6, {3}), {.batch_size = 2, .shard = Place{}, .max_bad_samples = 1});
  stderr_of([&] {
    loader.skip_first_batches(1);
    loader.next();
  });
  CHECK(loader.places() == Samples{2, -1});
  loader.next();
  CHECK(loader.places() == Samples{4, 5});
}

TEST_CASE("options that do not go together") {
  const auto with_sampler = [](std::shared_ptr<peal::data::Sampler> sampler) {
    return error_of([&] { DataLoader(broken(4, {}), sampler, {.max_bad_samples = 1}); });
  };
  check_has(with_sampler(std::make_shared<peal::data::DistributedSampler>(
                4, 1, 0, peal::data::ShardOptions{.exact = true})),
            "[data] loader: exact sees every sample once, and with max_bad_samples");
  check_has(with_sampler(std::make_shared<peal::data::RandomSampler>(
                4, peal::data::RandomSamplerOptions{.exact = true})),
            "[data] loader: exact sees every sample once, and with max_bad_samples");
  check_has(error_of([] {
              DataLoader(broken(4, {}), {.shard = Place{}, .exact = true, .max_bad_samples = 1});
            }),
            "[data] loader: exact sees every sample once, and with max_bad_samples");
  check_has(error_of([] { DataLoader(broken(4, {}), {.max_bad_samples = -1}); }),
            "[data] loader: expected max_bad_samples to be at least 0, got -1");
}
