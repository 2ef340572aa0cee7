// SPDX-License-Identifier: Apache-2.0
// Sharded checkpoints (PyTorch: torch.distributed.checkpoint's save and load): a folder in which
// each rank has a safetensors file of what lies with it, and nobody brings anything together, so
// that a model that is larger than one rank's memory is saved by many disks at once:
//
//   std::vector<nn::Part> parts{{"model", fsdp}, {"optimizer", fsdp.saved(optimizer)}};
//   nn::save_sharded("run.checkpoint", parts, group, {{"epoch", "3"}});   // all ranks
//   nn::load_sharded("run.checkpoint", parts, group);                     // all ranks
//
//   run.checkpoint/checkpoint.index.json            which elements of each tensor are in which file
//   run.checkpoint/shard-1-rank-0-of-4.safetensors  and so on, one a rank
//
// Parts are those of nn::save (nn/checkpoint.h), under the same keys. Of an FSDP model and its
// optimizer each rank writes its pieces, and of a ZeroRedundancyOptimizer what it owns. All else is
// the same on all ranks, as a DDP model is, and rank 0's counts. What was saved by any number of
// ranks loads at any other, into FSDP, DDP with or without a ZeroRedundancyOptimizer, or one
// process (without a group), each rank reading the ranges that it keeps. A file of nn::save or
// save_model loads in the same way, where it is named instead of the folder.
//
// The checkpoint is there once its index is (checkpoint_index.h), which rank 0 writes last, when
// all ranks have said that their files are whole and on the disk. Until then the folder holds the
// checkpoint before, whose files go after that; what a killed save left goes with the next. So one
// run saves into a folder at a time.
//
// Loading looks at everything first, and at all checksums, of which each rank looks at its share of
// the files; what it reads lies in memory beside the model, as large as this rank's part. Where one
// rank finds something wrong all ranks get an Error that names it, and nothing has changed.
// Thread safety: as of the group and the parts.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/checkpoint.h>

#include <filesystem>
#include <string_view>
#include <vector>

namespace peal::nn {

inline constexpr std::string_view sharded_index_name = "checkpoint.index.json";

// Collective; all ranks see the folder, which is made where it is not there. Error on all ranks,
// and the checkpoint that was there before stays: what nn::save finds; a rank that cannot write,
// parts whose ranks leave out elements or have some twice, and ignored modules of an FSDP model
// that differ between ranks.
void save_sharded(const std::filesystem::path& folder, const std::vector<Part>& parts,
                  const comm::ProcessGroup& group = {}, const Metadata& metadata = {});

// Collective. strict: as nn::load. Error on all ranks, and nothing has changed: no such checkpoint,
// one that is damaged, not the same on all ranks, or not of these parts.
Checkpoint load_sharded(const std::filesystem::path& folder, const std::vector<Part>& parts,
                        const comm::ProcessGroup& group = {}, bool strict = true);

}  // namespace peal::nn
