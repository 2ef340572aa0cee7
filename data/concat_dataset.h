// SPDX-License-Identifier: Apache-2.0
// ConcatDataset: sets one behind the other, as one (torch.utils.data.ConcatDataset). Batches of the
// single sets are put together row by row, so their samples have one shape. Thread safety:
// immutable.
#pragma once

#include <peal/data/dataset.h>

#include <cstdint>
#include <span>
#include <vector>

namespace peal::data {

class ConcatDataset : public Dataset {
 public:
  // Error: no set at all, or one that is null.
  explicit ConcatDataset(std::vector<DatasetRef> sets);

  std::int64_t size() const override { return ends_.back(); }
  // Error, which names the sets: rows of other types or shapes, other names.
  Batch get(std::span<const std::int64_t> indices) const override;
  // Of set k with draws of a seed of its own, that of set 0 being the one given.
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;

 private:
  template <class Make>
  Batch put_together(std::span<const std::int64_t> indices, const Make& make) const;

  std::vector<DatasetRef> sets_;
  std::vector<std::int64_t> ends_;  // the number of the first sample behind each
};

}  // namespace peal::data
