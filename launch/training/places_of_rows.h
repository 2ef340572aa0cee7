// SPDX-License-Identifier: Apache-2.0
// Places of rows: which samples of a data set the rows of a batch are, for gather_in_order
// (across_processes.h). A batch may have its rows in another order than its samples came in, as
// data::pad_parts makes it, and says so in its "order". Thread safety: pure.
#pragma once

#include <peal/data/batch.h>
#include <peal/data/loader.h>

#include <cstdint>
#include <vector>

namespace peal::launch {

// Of the batch that the loader gave last, one number a row. `before`: how many rows the epoch had
// before it, which is where a plan's batch begins. Error where the loader has places for another
// number of samples.
std::vector<std::int64_t> places_of_rows(const data::DataLoader& loader, const data::Batch& batch,
                                         std::int64_t before);

}  // namespace peal::launch
