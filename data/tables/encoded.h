// SPDX-License-Identifier: Apache-2.0
// A table as tensors, by the statistics of its training rows. A batch of it is
//
//   x          [B, categories] i64: codes, below TableStatistics::cardinalities()
//   "numbers"  [B, numbers] f32: filled and scaled
//   y          [B] i64, the place of the target's word, or [B] f32, a number as it is; none of
//              a table without the target's column, whose rows are to be predicted
// Thread safety: a pure function but for what it tells.
#pragma once

#include <peal/data/tables/statistics.h>
#include <peal/data/tensor_dataset.h>

#include <memory>

namespace peal::data {

// Words that training had none of get code 0, and a warning tells how many there are, and where the
// first is. Errors, with the line: a number that is none, one that is missing in a column where no
// training row lacked one, a target that is missing or that training had none of; a column that the
// table has not, but for the target's, unless another one has nearly its name.
std::shared_ptr<const TensorDataset> encoded(const Table& table, const TableStatistics& statistics);

}  // namespace peal::data
