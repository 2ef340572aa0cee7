// SPDX-License-Identifier: Apache-2.0
// What the page shows of a memory ledger, as JSON: what each rank holds over one step of training,
// for DDP, ZeRO-1, ZeRO-2, FSDP, and DDP with activation checkpointing. The model is a stack of the
// blocks that transformers have between attentions (Linear, GELU, Linear, and what came in added).
//
// Parameters, gradients and state are those of peal's own plans (placement.h, bucket_plan.h,
// shard_plan.h, unit_schedule.h); activations are measured: a step is run, and what the allocator
// has handed out besides them is theirs, the most of each moment. Thread safety: one call at a
// time, with nobody else who allocates.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace peal::launch {

struct MemoryViewOptions {
  std::int64_t width = 128, blocks = 6;
  std::int64_t batch = 256;  // rows of a rank
  int ranks = 4;
  std::int64_t bucket_bytes = 256 << 10;
};

// By way: {"name", "says", "formula", "by_formula", "estimate", "ranks"}, of each rank and moment
// [parameters, gathered ones, gradients, empty buckets, optimizer's state, activations] in bytes.
// Error for more blocks or ranks than a page shows.
nlohmann::json memory_json(const MemoryViewOptions& options);

}  // namespace peal::launch
