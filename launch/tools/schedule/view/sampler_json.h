// SPDX-License-Identifier: Apache-2.0
// What the page shows of who reads what, as JSON: an epoch's samples in their order, and the
// batches that each rank reads of them, step by step; the epoch is left after some steps, and
// others take it up. Three ways to go on beside each other: from the state that peal keeps, by
// skipping as many steps as were taken, and from the beginning. All batches are those of the
// samplers and deals of data/, as a loader would ask for them.
//
// Thread safety: a pure function.
#pragma once

#include <peal/data/deal.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct SamplerViewOptions {
  std::int64_t samples = 26, batch_size = 2;
  int ranks = 3, resumed = 4;  // before the cut, and behind it
  std::int64_t taken = 2;      // steps before the cut
  std::int64_t epoch = 0;
  std::uint64_t seed = 0;
  bool sequential = false, drop_last = false, exact = false;
  std::string way = "samples";  // of data::Way
};

// By way of going on: {"name", "says", "state", "phases": [{"ranks", "steps"}], "repeated",
// "lost"}. A step has a batch a rank, of [sample, place in the order or -1 where it fills up].
// Errors: a way that is none, more samples or ranks than a page shows, more steps taken than there
// are, those of the samplers.
nlohmann::json sampler_json(const SamplerViewOptions& options);

}  // namespace peal::launch
