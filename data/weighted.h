// SPDX-License-Identifier: Apache-2.0
// Weighted sampling: sample i is drawn with a probability proportional to its weight
// (torch.utils.data.WeightedRandomSampler), for classes that are rare. The draws are a plan: a pure
// function of (weights, count, seed, epoch), the same on all ranks, which take turns with them as
// in sampler.h. With replacement each draw stands for itself; without, a sample comes once at most
// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
// Thread safety: weighted_order() is pure; the sampler is a value, written by one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

class WeightedRandomSampler : public Sampler {
 public:
  // `count` draws an epoch, of all ranks together. Errors: as of weighted_order() and shard().
  WeightedRandomSampler(std::vector<double> weights, std::int64_t count,
                        const WeightedOptions& options = {});

  std::vector<std::int64_t> indices() const override;
  std::int64_t size() const override { return places_.size(); }
  std::int64_t place(std::int64_t k) const override { return places_.place(k); }
  void set_epoch(std::int64_t epoch) override { places_.set_epoch(epoch); }
  std::optional<std::int64_t> epoch() const override { return places_.epoch(); }
  std::int64_t consumed_after(std::int64_t taken) const override {
    return places_.consumed_after(taken);
  }
  void resume(std::int64_t epoch, std::int64_t consumed) override {
    places_.resume(epoch, consumed);
  }

 private:
  std::shared_ptr<const std::vector<double>> weights_;
  std::int64_t count_;
  WeightedOptions options_;
  DistributedSampler places_;  // which of the draws are this rank's
};

}  // namespace peal::data
