// SPDX-License-Identifier: Apache-2.0
// A data set that is a stream: parts (files, say), each read from one end to the other, of which
// nobody knows how many samples they have (PyTorch: IterableDataset). StreamLoader makes batches of
// it. Invariant: a part read again in the same epoch gives the same samples.
//
//   struct Lines : data::StreamDataset {
//     std::int64_t parts() const override { return std::ssize(paths); }
//     Reader read(std::int64_t part, std::int64_t from, const data::Draws&) const override {
//       auto file = std::make_shared<std::ifstream>(paths[part]);
//       for (std::string line; from > 0 && std::getline(*file, line); --from) {}
//       return [=]() -> std::optional<data::Batch> {
//         std::string line;
//         return std::getline(*file, line) ? std::optional(as_tensors(line)) : std::nullopt;
//       };
//     }
//   };
//
// Thread safety: const methods may be called from several threads at once; a reader belongs to one.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/data/batch.h>
#include <peal/data/collate.h>
#include <peal/data/draw.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace peal::data {

// One batch of these, one after the other: their tensors along dim 0. Error where they have
// different tensors, types or sizes.
Batch joined(std::span<const Batch> samples);
// The same by a Collate, which gets them one by one without the batch's dimension; by the above
// where there is none.
Batch joined(std::span<const Batch> samples, const Collate& together);

// What a reader throws where one sample is bad and the others are not: its next call gives the next
// one. The loader passes over it, up to as many as are allowed (max_bad_samples).
class BadStreamSample : public Error {
 public:
  using Error::Error;
};

// One that was.
struct PassedOver {
  std::int64_t part = 0, sample = 0;
  std::string why;
};

class StreamDataset {
 public:
  virtual ~StreamDataset() = default;
  virtual std::int64_t parts() const = 0;
  // The next sample as a batch of one, or nothing at the end of the part.
  using Reader = std::function<std::optional<Batch>()>;
  // Reads a part from its sample number `from` on. What augmentation draws is draws.of() a number
  // that the sample has in all of the set.
  virtual Reader read(std::int64_t part, std::int64_t from, const Draws& draws) const = 0;
  // Samples of a part are shuffled in blocks of so many, by what is drawn of the seed; 1: they come
  // as they lie, whatever the seed.
  virtual std::int64_t window() const { return 1; }
  // Samples as a batch. To be overridden where their sizes differ: padded, say.
  virtual Batch collate(std::span<const Batch> samples) const { return joined(samples); }
};

}  // namespace peal::data
