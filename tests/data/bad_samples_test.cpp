// SPDX-License-Identifier: Apache-2.0
// Samples that fail: named, counted and replaced, alike for any number of workers and wherever an
// epoch is taken up, up to as many as are allowed.
#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "drawn.h"

#include <set>
#include <stdexcept>

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
          if (plan.size() <= 3 || of_plan(3) == std::ssize(plan) - 3) continue;
          const auto [rest, count] = batches(bad, 2, 1);
          CHECK(rest == mended(Samples(plan.begin() + 3, plan.end()), bad));
          CHECK(count == of_plan(3));
        }
      }
    }
  }
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

TEST_CASE("options that do not go together") {
  check_has(error_of([] {
              DataLoader(broken(4, {}), {.shard = Place{}, .exact = true, .max_bad_samples = 1});
            }),
            "[data] loader: exact sees every sample once, and with max_bad_samples");
  check_has(error_of([] { DataLoader(broken(4, {}), {.max_bad_samples = -1}); }),
            "[data] loader: expected max_bad_samples to be at least 0, got -1");
}
