// SPDX-License-Identifier: Apache-2.0
// Memory estimate: what parameters, gradients, optimizer state and activations take on each rank,
// before anything is started (DeepSpeed: estimate_zero2_model_states_mem_needs). It follows the
// placement of whole parameters, so it is that of the run, byte for byte, and not only the formula
// to which it comes where parameters can be shared out evenly:
//
//   per parameter in f32 with Adam            on N ranks, and in bf16 (with f32 masters)
//   DDP      4 + 4 + 8 bytes = 16             2 + 2 + 12 = 16
//   ZeRO-1   8 + 8 / N                        4 + 12 / N
//   ZeRO-2   4 + 12 / N                       2 + 14 / N
//   FSDP     16 / N                           16 / N
//
// (Rajbhandari et al., "ZeRO", SC 2020, figure 1.) Activations, which activation_memory() measures
// (activation_memory.h), come on top within a step: the same with all of these. So do buffers; with
// ZeRO-2 what a rank has of others' gradients until their buckets are full and sent; with FSDP the
// whole units that are there while a step runs, and their gradients (in_step). Thread safety: pure
// functions.
#pragma once

#include <peal/nn/module.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/wrap_policy.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::nn {

// What is shared out: nothing (DDP), the optimizer's state (ZeroRedundancyOptimizer), gradients,
// too (ShardedDDP).
enum class Sharded : std::uint8_t { nothing, state, gradients };

struct MemoryEstimate {  // bytes of a rank
  std::int64_t parameters = 0, gradients = 0, state = 0;
  // FSDP's, on top of these, where a step has the most: whole parameters of the model's own unit
  // and of the two largest others, and as much of whole gradients, of which some are being reduced.
  // For the schedule as it is by itself, and units that are not within one another. Over a mesh,
  // where `world` is a row's, a unit's chunk comes on top.
  std::int64_t in_step = 0;
  // What forward and backward of a rank's batch hold on top, where it was given.
  std::int64_t activations = 0;
  // Bytes of a rank between steps: without in_step and activations.
  std::int64_t total() const { return parameters + gradients + state; }
  // At the high-water mark of a step, where gradients are there from its beginning: in DDP's
  // buckets always, else while they are accumulated. Where they are not, they come as activations
  // go, and it is less; with FSDP it is less by what of activations has gone when the second unit's
  // gradients come.
  std::int64_t peak() const { return total() + in_step + activations; }
  bool operator==(const MemoryEstimate&) const = default;
};

// By rank, once each trained parameter has had a step. The optimizer is the plain one, over all
// parameters; frozen ones have neither gradient nor state. Activations are what is given, in bytes,
// here and below.
std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, Sharded sharded, int world,
                                            std::int64_t activations = 0);

// Of FullyShardedDataParallel with these options; the optimizer is one that changes each element by
// itself, over parameters of the model. Chunks are counted with what pads them. With a device_mesh
// `world` is the number of its shards. With mixed_precision whole units are in param_dtype, and
// whole gradients in the type that they travel in; what is rounded of a chunk while it is gathered
// comes on top. Each rank has all of ignored_modules. Error for one that the model has not.
std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, const Module& model,
                                            const FSDPOptions& options, int world,
                                            std::int64_t activations = 0);
// With units by that policy.
std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, const Module& model,
                                            const WrapPolicy& wrap, int world,
                                            std::int64_t activations = 0);

// A table of what the rank that needs the most takes, for each way, in MiB; and with FSDP. Where
// activations are given, a line says what they add.
std::string describe_memory(const Optimizer& optimizer, int world, std::int64_t activations = 0);
std::string describe_memory(const Optimizer& optimizer, const Module& model, const WrapPolicy& wrap,
                            int world, std::int64_t activations = 0);

}  // namespace peal::nn
