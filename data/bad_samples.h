// SPDX-License-Identifier: Apache-2.0
// Samples that cannot be had: a broken image, a row that is no row. A batch with one is an error
// that names it, or, where the loader allows some, has another sample in its place: the next one of
// this rank's plan that is good, or, where none follows, the last one before it, be it in what came
// before the epoch was taken up. So what comes out depends on the plan alone, neither on workers
// nor on where an epoch was taken up, and no batch gets shorter. That memory ran out
// (OutOfMemory, std::bad_alloc) is no sample's fault and passes through. Thread safety: pure
// functions, as far as the data set's are.
#pragma once

#include <peal/data/batches.h>
#include <peal/data/dataset.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

struct BadSample {
  std::int64_t sample = 0, replaced_by = 0;
  std::int64_t batch = 0;  // of this rank, in the epoch
  std::string why;
  std::int64_t row = 0;  // of the batch
};

// Called while a failure to make this batch is handled, which so is nested in what is thrown: an
// Error that names the sample, found by making each alone.
[[noreturn]] void name_the_sample(const Dataset& dataset, std::int64_t batch,
                                  std::span<const std::int64_t> samples, const Draws& draws);

// Puts others in the place of the samples of batch number `batch` of the whole epoch's plan that
// fail alone.
// Stops after more than `most` of them, the last of which has replaced_by -1. Error where so many
// others fail, too, that there is none to put in.
std::vector<BadSample> replace_bad(const Dataset& dataset, const PlannedBatches& plan,
                                   std::int64_t batch, std::vector<std::int64_t>& samples,
                                   const Draws& draws, std::int64_t most);

}  // namespace peal::data
