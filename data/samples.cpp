// SPDX-License-Identifier: Apache-2.0
#include <peal/data/rows.h>
#include <peal/data/samples.h>

#include <vector>

namespace peal::data {

Batch SampleSet::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (const std::int64_t index : indices) {
    check_index("set of samples", index, size());
    Draw draw = draws.of(index);
    samples.push_back(sample(index, draw));
  }
  return together_(samples);
}

}  // namespace peal::data
