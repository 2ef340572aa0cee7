// SPDX-License-Identifier: Apache-2.0
// Subset: some samples of a set as a set of their own; random_split: a set in parts by chance
// (torch.utils.data). What is drawn to augment a sample is what would be drawn for it in the whole.
// Thread safety: immutable; pure functions.
#pragma once

#include <peal/data/dataset.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace peal::data {

class Subset : public Dataset {
 public:
  // Sample i is sample indices[i] of the whole. Error: no set, an index outside of it.
  Subset(DatasetRef whole, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return std::ssize(indices_); }
  Batch get(std::span<const std::int64_t> indices) const override;
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;

  const std::vector<std::int64_t>& indices() const { return indices_; }
  const Dataset& whole() const { return *whole_; }

 private:
  std::vector<std::int64_t> in_whole(std::span<const std::int64_t> indices) const;

  DatasetRef whole_;
  std::vector<std::int64_t> indices_;
};

// The samples 0..size-1 in parts, each in an order of chance, which `seed` decides: every sample in
// exactly one. `parts` are numbers of samples, whose sum is `size`, or fractions, whose sum is 1:
// each part then has the whole number below, and what is left over goes to the first ones, one
// each. Error for other sums, and a part below 0.
std::vector<std::vector<std::int64_t>> random_parts(std::int64_t size,
                                                    const std::vector<double>& parts,
                                                    std::uint64_t seed = 0);

// The same of a set: auto parts = random_split(set, {0.9, 0.1}, seed).
std::vector<std::shared_ptr<const Subset>> random_split(const DatasetRef& whole,
                                                        const std::vector<double>& parts,
                                                        std::uint64_t seed = 0);

}  // namespace peal::data
