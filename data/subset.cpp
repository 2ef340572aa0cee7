// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/rows.h>
#include <peal/data/sampler.h>
#include <peal/data/subset.h>

#include <cmath>
#include <numeric>
#include <utility>

namespace peal::data {

Subset::Subset(DatasetRef whole, std::vector<std::int64_t> indices)
    : whole_(std::move(whole)), indices_(std::move(indices)) {
  PEAL_CHECK(whole_, "[data] subset: expected a data set, got none");
  for (const std::int64_t index : indices_) check_index("subset", index, whole_->size());
}

std::vector<std::int64_t> Subset::in_whole(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> found;
  found.reserve(indices.size());
  for (const std::int64_t index : indices) {
    check_index("subset", index, size());
    found.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  return found;
}

Batch Subset::get(std::span<const std::int64_t> indices) const {
  return whole_->get(in_whole(indices));
}

Batch Subset::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  return whole_->augmented(in_whole(indices), draws);
}

std::vector<std::vector<std::int64_t>> random_parts(std::int64_t size,
                                                    const std::vector<double>& parts,
                                                    std::uint64_t seed) {
  double sum = 0;
  bool whole = true;
  for (const double part : parts) {
    PEAL_CHECK(part >= 0, "[data] random_split: expected parts of at least 0, got ", part);
    sum += part;
    whole = whole && part == std::floor(part);
  }
  std::vector<std::int64_t> sizes;
  if (whole && sum == static_cast<double>(size)) {
    sizes.assign(parts.begin(), parts.end());
  } else {
    PEAL_CHECK(std::abs(sum - 1) < 1e-9, "[data] random_split: expected numbers of samples of sum ",
               size, ", or fractions of sum 1, got a sum of ", sum);
    for (const double part : parts) {
      sizes.push_back(static_cast<std::int64_t>(part * static_cast<double>(size)));
    }
    std::int64_t left = size - std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    for (std::size_t i = 0; left > 0; i = (i + 1) % sizes.size(), --left) ++sizes[i];  // in turn
  }
  const std::vector<std::int64_t> order = shard(size, 1, 0, {.shuffle = true, .seed = seed});
  std::vector<std::vector<std::int64_t>> all;
  auto at = order.begin();
  for (const std::int64_t count : sizes) {
    all.emplace_back(at, at + count);
    at += count;
  }
  return all;
}

std::vector<std::shared_ptr<const Subset>> random_split(const DatasetRef& whole,
                                                        const std::vector<double>& parts,
                                                        std::uint64_t seed) {
  PEAL_CHECK(whole, "[data] random_split: expected a data set, got none");
  std::vector<std::shared_ptr<const Subset>> subsets;
  for (std::vector<std::int64_t>& indices : random_parts(whole->size(), parts, seed)) {
    subsets.push_back(std::make_shared<Subset>(whole, std::move(indices)));
  }
  return subsets;
}

}  // namespace peal::data
