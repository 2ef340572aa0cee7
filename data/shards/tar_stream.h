// SPDX-License-Identifier: Apache-2.0
// Tar shards in WebDataset's layout that are read from one end to the other: packed ones (.tar.gz),
// what a program writes, what a server sends (byte_source.h says which names there are). A shard is
// a part of the stream, so ranks and readers share shards, and a state says how far each was read.
//
//   data::StreamLoader loader(
//       std::make_shared<data::TarStream>(data::shard_paths("pipe:zstd -dc t-{00..31}.tar.zst"),
//                                         data::decode_images({...})),
//       {.batch_size = 32, .place = job.place(), .readers = 4, .workers = 4, .shuffle = true});
//
// Plain files are better read by their places (tar_shards.h): evenly among ranks, in one order for
// all. A pipe: runs its command, so names are as trusted as the program. Thread safety: as of a
// stream.
#pragma once

#include <peal/data/shards/tar_sample.h>
#include <peal/data/stream_dataset.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace peal::data {

struct TarStreamOptions {
  // Samples are shuffled among so many that follow one another in a shard, which are held in
  // memory, as bytes; 1: they come as they lie.
  std::int64_t window = 1;
  Collate together = nullptr;  // as they are, in one batch
};

class TarStream : public StreamDataset {
 public:
  // Errors: no shard, window < 1.
  TarStream(std::vector<std::string> shards, Decode decode, TarStreamOptions options = {});

  std::int64_t parts() const override { return std::ssize(shards_); }
  std::int64_t window() const override { return options_.window; }
  // A sample that cannot be decoded is a BadStreamSample; a shard that cannot be opened or read is
  // an Error.
  Reader read(std::int64_t part, std::int64_t from, const Draws& draws) const override;
  Batch collate(std::span<const Batch> samples) const override;

 private:
  std::vector<std::string> shards_;
  Decode decode_;
  TarStreamOptions options_;
  mutable std::vector<std::atomic_flag> told_of_links_;  // by shard: once, not in each epoch
};

}  // namespace peal::data
