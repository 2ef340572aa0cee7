// SPDX-License-Identifier: Apache-2.0
// Files of JSON lines (.jsonl) as a data set: where lines begin is found out once, and each is read
// and parsed when it is asked for. So a set costs eight bytes a line, and what any loader can do
// with a data set goes for it.
//
//   const auto reviews = std::make_shared<data::JsonLines>(
//       std::vector<std::string>{"reviews.jsonl"},
//       [&](const data::JsonRecord& line, data::Draw&) -> data::Sample {
//         return {tensor_of(line.text("review")), Tensor::scalar(line.integer("stars"))};
//       });
//
// Blank lines are none; a broken one is an error that names file and line, or, with the loader's
// max_bad_samples, counted. Packed files are streams (json_stream.h). Thread safety: as of a data
// set.
#pragma once

#include <peal/data/samples.h>
#include <peal/data/shards/json_record.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::data {

// Called by several threads at once; whatever chance there is comes from the Draw alone.
using FromRecord = std::function<Sample(const JsonRecord& line, Draw& draw)>;

// The same; what it throws says file and line.
Sample made_of(const FromRecord& make, const JsonRecord& line, Draw& draw);

inline constexpr std::uint64_t longest_line = std::uint64_t{1} << 28;  // bytes; more is an error

struct JsonLinesOptions {
  Collate together = collate;
  // Where lines begin is kept in FILE.idx, of files from this size on, in bytes.
  std::uint64_t keep_index_from = std::uint64_t{1} << 26;
  int threads = 8;  // that look for lines
};

class JsonLines : public SampleSet {
 public:
  // Errors: no file, one that is not there or is packed, no line.
  JsonLines(std::vector<std::string> files, FromRecord make, JsonLinesOptions options = {});
  ~JsonLines() override;

  std::int64_t size() const override;
  // Errors, which say file and line: those of record(), what `make` throws.
  Sample sample(std::int64_t index, Draw& draw) const override;
  // Errors: a line that is broken, or too long, a file that was changed since its lines were looked
  // for.
  JsonRecord record(std::int64_t index) const;
  // How many lines each file has, for a ShardSampler.
  std::vector<std::int64_t> sizes() const;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace peal::data
