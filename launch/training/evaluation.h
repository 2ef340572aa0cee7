// SPDX-License-Identifier: Apache-2.0
// Evaluation of a model by all ranks together: each judges its own part of the set, and counts are
// summed, so the result is that of one rank over all of it. Thread safety: one thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/data/loader.h>
#include <peal/nn/module.h>

namespace peal::launch {

// The share of the loader's samples whose class (y, i64 [B]) has the largest of the model's outputs
// [B, classes]. Leaves the model in evaluation. Collective; exact where the loader's shard is.
// Error on all ranks where they have no sample together.
double accuracy(nn::Module& model, data::DataLoader& loader, const comm::ProcessGroup& group);

}  // namespace peal::launch
