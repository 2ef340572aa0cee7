// SPDX-License-Identifier: Apache-2.0
// Weighted sampling: sample i is drawn with a probability proportional to its weight
// (torch.utils.data.WeightedRandomSampler), for classes that are rare. The draws are a plan: a pure
// function of (weights, count, seed, epoch), the same on all ranks, which take turns with them as
// in sampler.h. With replacement each draw stands for itself; without, a sample comes once at most
// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
// Thread safety: weighted_order() is pure; the sampler is a value, written by one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/drawn_sampler.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace peal::data {

// `count` draws from 0..weights.size()-1. Errors, which name the sample: a weight that is negative
// or not finite; also no weight above 0, count < 0, and without replacement a count above the
// number of weights that are not 0.
std::vector<std::int64_t> weighted_order(std::span<const double> weights, std::int64_t count,
                                         bool replacement, std::uint64_t seed, std::int64_t epoch);

struct WeightedOptions {
  bool replacement = true;
  std::uint64_t seed = 0;  // equal on all ranks
  Place place{};
  bool exact = false;  // as of ShardOptions, for the draws
};

class WeightedRandomSampler : public DrawnSampler {
 public:
  // `count` draws an epoch, of all ranks together. Errors: as of weighted_order() and shard().
  WeightedRandomSampler(std::vector<double> weights, std::int64_t count,
                        const WeightedOptions& options = {});

  // As of a DrawnSampler, and "weights_digest".
  std::vector<std::pair<std::string, std::int64_t>> order_of() const override;

 protected:
  std::vector<std::int64_t> drawn(std::int64_t epoch) const override;

 private:
  std::shared_ptr<const std::vector<double>> weights_;
  std::int64_t digest_;  // of their bytes
  std::int64_t count_;
  WeightedOptions options_;
};

}  // namespace peal::data
