// SPDX-License-Identifier: Apache-2.0
// JSON lines that are read from one end to the other: packed files (.jsonl.gz), what a program
// writes, what a server sends (byte_source.h). A file is a part of the stream (stream_dataset.h).
// Thread safety: as of a stream.
#pragma once

#include <peal/data/shards/json_lines.h>
#include <peal/data/stream_dataset.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::data {

struct JsonStreamOptions {
  // Lines are shuffled among so many that follow one another in a file; 1: they come as they stand.
  std::int64_t window = 1;
  Collate together = nullptr;  // as they are, in one batch
};

class JsonStream : public StreamDataset {
 public:
  // Errors: no file, window < 1.
  JsonStream(std::vector<std::string> files, FromRecord make, JsonStreamOptions options = {});

  std::int64_t parts() const override { return std::ssize(files_); }
  std::int64_t window() const override { return options_.window; }
  // A line that is broken is a BadStreamSample; a file that cannot be opened or read, and a line of
  // more than longest_line, an Error.
  Reader read(std::int64_t part, std::int64_t from, const Draws& draws) const override;
  Batch collate(std::span<const Batch> samples) const override;

 private:
  std::vector<std::string> files_;
  FromRecord make_;
  JsonStreamOptions options_;
};

}  // namespace peal::data
