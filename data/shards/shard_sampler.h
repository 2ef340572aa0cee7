// SPDX-License-Identifier: Apache-2.0
// The order of samples that lie in shards: shard after shard, the shards in an order of chance, and
// the samples shuffled within a window, so that a disk is read from near to near. It is a bijection
// of which each place is worked out by itself, so an epoch is opened anywhere, and ranks and
// workers need no buffer of samples and no word with each other:
//
//   sequence = the samples of shard s0, of shard s1, ..; s a permutation drawn from seed + epoch
//   order    = the sequence, permuted in blocks of `window`, and once more in blocks that begin
//              half a window further on; so no sample is more than a window and a half away from
//              its place in the sequence, and no border is one for good
//
// Ranks take turns, as in sampler.h; what an epoch has come to is (seed, epoch, samples taken),
// with the window and the number of samples, which the order hangs on too: 40 bytes, which another
// number of ranks, workers or batch size takes up as well. Thread safety:
// shard_order() is pure; a ShardSampler is a value, written by one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace peal::data {

struct ShardSamplerOptions {
  bool shuffle = true;         // without it the samples come as they lie
  std::int64_t window = 8192;  // samples
  std::uint64_t seed = 0;      // equal on all ranks
  bool drop_last = false;      // as of ShardOptions
  bool exact = false;
};

// The samples of shards that have so many each, which are numbered through. Errors: a size below 0,
// window < 1.
Order shard_order(const std::vector<std::int64_t>& sizes, const ShardSamplerOptions& options,
                  std::int64_t epoch);

class ShardSampler : public DistributedSampler {
 public:
  // Errors: as above, and those of shard().
  ShardSampler(std::vector<std::int64_t> sizes, Place place,
               const ShardSamplerOptions& options = {});

  Order order() const override;
  // "samples", and "window" where it shuffles.
  std::vector<std::pair<std::string, std::int64_t>> order_of() const override;
  std::vector<std::int64_t> indices() const override { return order().to_vector(); }

 private:
  std::vector<std::int64_t> sizes_;
  Place place_;
  ShardSamplerOptions how_;
};

}  // namespace peal::data
