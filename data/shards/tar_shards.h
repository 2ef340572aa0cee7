// SPDX-License-Identifier: Apache-2.0
// A data set of tar shards in WebDataset's layout (tar_index.h), read where they lie: their headers
// once, then each sample by its place. So it has a size, any order serves it, and what any loader
// can do with a data set goes for shards, too: workers, any number of ranks, a state of 48 bytes
// that is taken up by any other number, bad samples that are counted (max_bad_samples).
//
//   const auto train = std::make_shared<data::TarShards>(
//       data::shard_paths("train-{000000..000146}.tar"), data::decode_images({...}));
//   data::DataLoader loader(train, train->sampler(job.place(), {.seed = 7}),
//                           {.batch_size = 32, .workers = 4});
//
// The sampler reads shard after shard (shard_sampler.h), where a plain shuffle would jump through
// all of them. Shards that are packed or come through a pipe are streams (tar_stream.h).
// Where ranks share a folder, let one make the indices: launch::rank0_first. Thread safety: as of a
// data set.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/samples.h>
#include <peal/data/shards/shard_sampler.h>
#include <peal/data/shards/tar_sample.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace peal::data {

struct TarShardOptions {
  Collate together = collate;
  bool keep_index = true;  // SHARD.idx beside each
  int threads = 8;         // that read headers
};

class TarShards : public SampleSet {
 public:
  // Errors: no shard, some that are not there (all are named), those of index_tar(), no sample.
  TarShards(std::vector<std::string> shards, Decode decode, TarShardOptions options = {});
  ~TarShards() override;

  std::int64_t size() const override;
  // Error: a shard that was changed since its headers were read, what decoding throws, both with
  // the sample's name.
  Sample sample(std::int64_t index, Draw& draw) const override;
  // Sample `index` as bytes.
  TarSample files(std::int64_t index) const;
  // "train-000000.tar: sample 'dogs/1'".
  std::string name(std::int64_t index) const;

  const std::vector<std::string>& shards() const;
  // How many samples each has.
  std::vector<std::int64_t> sizes() const;
  std::shared_ptr<ShardSampler> sampler(Place place, const ShardSamplerOptions& options = {}) const;

 private:
  struct Shards;
  std::unique_ptr<Shards> shards_;
};

}  // namespace peal::data
