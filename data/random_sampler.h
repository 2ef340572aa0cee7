// SPDX-License-Identifier: Apache-2.0
// RandomSampler: samples in an order of chance, another one in each epoch, with replacement or
// without, as many as one likes (torch.utils.data.RandomSampler). A pure function of (size,
// options, epoch), the same on all ranks. Thread safety: a value, written by one thread.
#pragma once

#include <peal/data/drawn_sampler.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace peal::data {

struct RandomSamplerOptions {
  bool replacement = false;
  // How many an epoch, of all ranks together; by default as many as there are. Without replacement
  // all samples come before one comes again.
  std::optional<std::int64_t> num_samples = {};
  std::uint64_t seed = 0;  // equal on all ranks
  Place place{};
  bool exact = false;  // as of ShardOptions, for the draws
};

class RandomSampler : public DrawnSampler {
 public:
  // Errors: a size or num_samples below 0, samples of an empty set, those of shard().
  explicit RandomSampler(std::int64_t size, const RandomSamplerOptions& options = {});

 protected:
  std::vector<std::int64_t> drawn(std::int64_t epoch) const override;

 private:
  std::int64_t size_;
  RandomSamplerOptions options_;
};

}  // namespace peal::data
