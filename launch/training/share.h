// SPDX-License-Identifier: Apache-2.0
// Shares of a training's data: a loader that nobody has said anything about gives all of its set to
// every rank, and is shared out by whoever trains (the Accelerator, the Learner). One with a shard,
// a sampler or a plan is this rank's own already and stays as it is, if it is of the right rank.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/loader.h>

#include <cstdint>
#include <string>

namespace peal::launch {

// No shard, no sampler, no plan: every rank would have all of it.
bool is_whole(const data::DataLoader& loader);

// The options of a whole loader as those of one rank's part of it. With Way::batches batch k goes
// to rank k mod world, so that a round of the ranks' batches is what one rank would have as one
// large batch. `exact`: each sample comes once and none is left out, as evaluation wants it, so
// ranks may differ; else they have equally many batches.
data::LoaderOptions shared_out(data::LoaderOptions whole, Place here, data::Way way, bool exact);

// What is wrong with whose share a loader says it is, in words: "its shard is of rank 0 of 2, and
// this is rank 1 of 2; ..."; empty where nothing is. A whole loader and a plan say nothing.
std::string wrong_place(const data::DataLoader& loader, Place here);
// The same of one that shall give each sample once, in a validation.
std::string wrong_for_validation(const data::DataLoader& loader, Place here);

}  // namespace peal::launch
