// SPDX-License-Identifier: Apache-2.0
// Weighted draws: their frequencies, what ranks share of them, and where an epoch is taken up.
#include "drawn.h"

#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/weighted.h>

#include <limits>
#include <memory>
#include <set>

using peal::data::weighted_order;
using peal::data::WeightedRandomSampler;

namespace {

// How often each sample was drawn against its share, as chi squared.
double chi_squared(const Samples& drawn, const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> counts(weights.size());
  for (const std::int64_t sample : drawn) ++counts[static_cast<std::size_t>(sample)];
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double expected = weights[i] / total * static_cast<double>(drawn.size());
    if (weights[i] == 0) CHECK(counts[i] == 0);
    if (weights[i] > 0) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

}  // namespace

TEST_CASE("samples are drawn as often as their weights say") {
  const std::vector<double> weights{1, 0, 3, 0.5, 0, 2.5, 0};
  CHECK(chi_squared(weighted_order(weights, 20000, true, 3, 0), weights) < 16.3);  // p = 0.001
  Samples firsts;
  for (std::int64_t epoch = 0; epoch < 5000; ++epoch) {
    const Samples drawn = weighted_order(weights, 4, false, 9, epoch);
    CHECK(sorted(drawn) == Samples{0, 2, 3, 5});
    firsts.push_back(drawn[0]);
  }
  CHECK(chi_squared(firsts, weights) < 16.3);
  CHECK(weighted_order({}, 0, true, 0, 0).empty());
  // Weights whose sum rounds.
  for (const std::int64_t sample :
       weighted_order(std::vector<double>{1e300, 1e-300, 0}, 1000, true, 1, 0)) {
    CHECK(sample == 0);
  }
}

TEST_CASE("draws depend on seed + epoch alone, and a draw stands for itself") {
  const std::vector<double> weights{1, 2, 3, 4};
  const Samples drawn = weighted_order(weights, 50, true, 5, 1);
  CHECK(drawn == weighted_order(weights, 50, true, 6, 0));
  CHECK(drawn != weighted_order(weights, 50, true, 5, 2));
  const Samples fewer = weighted_order(weights, 20, true, 5, 1);
  CHECK(std::equal(fewer.begin(), fewer.end(), drawn.begin()));
}

TEST_CASE("ranks share the draws out, and none has a sample without weight") {
  std::vector<double> weights(50, 1);
  std::fill(weights.begin(), weights.begin() + 25, 0.0);
  const Samples all = weighted_order(weights, 41, true, 7, 3);
  for (const int world : {1, 2, 3, 4}) {
    Samples together(41);
    for (int rank = 0; rank < world; ++rank) {
      WeightedRandomSampler sampler(weights, 41,
                                    {.seed = 7, .place = {rank, world}, .exact = true});
      sampler.set_epoch(3);
      const Samples mine = sampler.indices();
      CHECK(std::ssize(mine) == sampler.size());
      for (std::size_t k = 0; k < mine.size(); ++k) {
        CHECK(mine[k] >= 25);
        together[k * static_cast<std::size_t>(world) + static_cast<std::size_t>(rank)] = mine[k];
      }
    }
    CHECK(together == all);
  }
  // fastai's: contiguous parts of the same draws.
  for (int rank = 0; rank < 3; ++rank) {
    for (const auto& batch : peal::data::contiguous_batches(all, 4, {rank, 3})) {
      for (const std::int64_t sample : batch) CHECK(sample >= 25);
    }
  }
}

TEST_CASE("a loader takes up an epoch of weighted draws, in another world too") {
  const std::vector<double> weights{3, 1, 2, 5, 4, 1, 1, 1};
  const auto set = std::make_shared<Drawn>(8);
  const auto make = [&](int rank, int world) {
    return std::make_unique<DataLoader>(
        set,
        std::make_shared<WeightedRandomSampler>(
            weights, 30,
            peal::data::WeightedOptions{.seed = 2, .place = {rank, world}, .exact = true}),
        peal::data::LoaderOptions{.batch_size = 3});
  };
  for (int steps = 0; steps <= 5; ++steps) {
    Samples seen;
    peal::NamedTensors state;
    for (int rank = 0; rank < 2; ++rank) {
      const auto loader = make(rank, 2);
      loader->set_epoch(1);
      for (int step = 0; step < steps; ++step) {
        const Samples batch = loader->next()->x.to_vector<std::int64_t>();
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      if (rank == 0) state = loader->state_dict();
    }
    for (int rank = 0; rank < 3; ++rank) {
      const auto loader = make(rank, 3);
      loader->load_state_dict(state);
      const Samples rest = flat(epoch_of(*loader));
      seen.insert(seen.end(), rest.begin(), rest.end());
    }
    CHECK(sorted(seen) == sorted(weighted_order(weights, 30, true, 2, 1)));
  }
}

TEST_CASE("errors name the sample") {
  const auto throws = [](std::vector<double> weights, std::int64_t count, bool replacement,
                         const char* text) {
    CHECK_THROWS_WITH_AS(weighted_order(weights, count, replacement, 0, 0), text, peal::Error);
    CHECK_THROWS_WITH_AS(WeightedRandomSampler(weights, count, {.replacement = replacement}), text,
                         peal::Error);
  };
  throws({1, 2, -0.5}, 1, true,
         "[data] weighted sampler: expected a finite weight of at least 0, got -0.5 for sample 2");
  throws({1, std::numeric_limits<double>::quiet_NaN()}, 1, true,
         "[data] weighted sampler: expected a finite weight of at least 0, got nan for sample 1");
  throws({0, 0}, 1, true, "[data] weighted sampler: none of 2 samples has a weight above 0");
  throws({1, 0, 2}, 3, false,
         "[data] weighted sampler: 3 draws without replacement from 2 samples whose weight is not "
         "0");
  throws({1}, -1, true, "[data] weighted sampler: expected a count of at least 0, got -1");
}
