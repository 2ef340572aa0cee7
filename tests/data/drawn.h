// SPDX-License-Identifier: Apache-2.0
// A data set that shows what is drawn for a sample, and what tests of a loader's epochs ask of it.
#pragma once

#include <peal/data/loader.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

using peal::Place;
using peal::Tensor;
using peal::data::Batch;
using peal::data::Batches;
using peal::data::DataLoader;
using peal::data::Dataset;
using peal::data::DatasetRef;
using peal::data::Draw;
using peal::data::Draws;
using Samples = std::vector<std::int64_t>;

// x: the number of the sample; y: what was drawn for it; length: as many as it has digits.
struct Drawn : Dataset {
  explicit Drawn(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  Batch get(std::span<const std::int64_t> indices) const override {
    return augmented(indices, Draws{});
  }
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override {
    const Samples x(indices.begin(), indices.end());
    Samples y, length;
    for (const std::int64_t index : x) {
      Draw draw = draws.of(index);
      y.push_back(std::int64_t{draw.bits()} << 16 | draw.below(1000));
      length.push_back(std::ssize(std::to_string(index)));
    }
    const auto tensor = [&](const Samples& values) {
      return Tensor::from(values, {std::ssize(values)}, peal::Device{});
    };
    return {tensor(x), tensor(y), {{"length", tensor(length)}}};
  }
  std::int64_t count;
};

inline Batches epoch_of(DataLoader& loader) {
  Batches batches;
  for (const auto& [x, y] : loader) batches.push_back(x.to_vector<std::int64_t>());
  return batches;
}

inline Samples flat(const Batches& batches) {
  Samples all;
  for (const Samples& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

inline Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

inline Samples up_to(std::int64_t size) {
  Samples all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}
