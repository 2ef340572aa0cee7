// SPDX-License-Identifier: Apache-2.0
// FullyShardedDataParallel (PyTorch: FSDP; Zhao et al., "PyTorch FSDP", VLDB 2023; ZeRO stage 3):
// as DistributedDataParallel, but that each rank keeps a part of every parameter, of its gradient
// and so of what the optimizer keeps, and the rest comes where it is used:
//
//   nn::GPT gpt(settings);
//   nn::FullyShardedDataParallel fsdp(gpt, job.group(), {.wrap = nn::wrap_by_type({"GptBlock"})});
//   nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 1e-3});
//   loss(fsdp(x), y).backward();
//   fsdp.clip_grad_norm_(1.0);
//   optimizer.step();
//
// The model is cut into units (wrap_policy.h), whose parameters are gathered before their module's
// forward and its part of backward, and freed after them (unit_schedule.h); gradients are averaged
// over the ranks, by DDP's divisor, and each rank gets those of its part. So a rank has 1 / world
// of parameters, gradients and optimizer state, two units more while a step runs, and the model's
// own unit; where `wrap` makes no units that is all of it, in a step.
//
// It is a handle to the same module: names and shapes stay the model's, and keys gain no prefix.
// Reading a parameter that is not gathered is an Error that names it, also by an optimizer that was
// given the model's parameters. What has values always are this rank's pieces, local_parameters(),
// by the same names: flat, and some of them empty. So optimizers that change each element by itself
// (SGD, Adam) train as on one device; those that look at several together (Muon, Adafactor, LAMB,
// LARS, LBFGS) refuse pieces, and so do nn::clip_grad_norm_ and a GradScaler without the group.
// Groups that go by shapes ask the model's, as pieces have lost theirs:
//
//   for (const auto& [name, piece] : fsdp.local_parameters()) {
//     (gpt.get_parameter(name).dim() < 2 ? plain : decayed).emplace_back(name, piece);
//   }
//
// What a forward writes into parameters (Embedding's max_norm) is an Error: write between steps,
// within summon_full_parameters() or, element by element, into the pieces.
//
// With mixed_precision (mixed_precision.h) the pieces stay masters of the model's type, and so do
// their gradients and all states. Units are gathered and computed in param_dtype, of which the
// model's parameters are then, and given inputs in it; whole gradients add up, under no_sync() too,
// and are sent in reduce_dtype; what the model gives is in output_dtype. Within
// summon_full_parameters() the model is of its own type; so with param_dtype a forward within
// belongs to a backward within. Hooks of gradients see them in the type that these travel in.
//
// With cpu_offload (FairScale: cpu_offload; PyTorch: CPUOffload) the pieces of a model on a device
// are in the host's memory, page-locked: parameters, gradients and all states, and the optimizer
// computes there. On the device are the units that are there, and their gradients: a unit's pieces
// are copied there before they are gathered, and its averaged gradients back, where they add up.
// The numbers are the same. Of a model on the CPU it changes nothing, as its pieces are there
// already: so one program is for both. With one rank it is Accelerate's cpu_offload.
//
//   net.to(job.device());
//   nn::FullyShardedDataParallel fsdp(net, job.group(), {.cpu_offload = {.offload_params = true}});
//
// With a device_mesh of two dimensions (HSDP, HYBRID_SHARD) the model is cut over the second one's
// ranks alone, and the first one's have replicas of the same part: units are gathered within a row
// of the mesh, a node say, and gradients reduced there, and then averaged, a part each, between the
// rows. Averages, states and rank 0's values are those of all ranks, as without.
//
//   const comm::DeviceMesh mesh(group, {2, 4}, {"replicate", "shard"});
//   nn::FullyShardedDataParallel fsdp(gpt, group, {.device_mesh = mesh});
//
// A model with tensor-parallel layers (tensor/tensor_parallel.h) is cut once more, over the ranks
// of another dimension of the mesh, which have the same parts. States are the plain model's all the
// same, and norms of all ranks; a GradScaler has the group of all. `to` of consolidate_state_dict()
// is then a rank of this group, and of its row the first one saves:
//
//   const comm::DeviceMesh mesh(group, {2, 4}, {"dp", "tp"});
//   nn::TensorParallel tp = nn::parallelize_module(gpt, mesh.get_group("tp"), plan);
//   nn::FullyShardedDataParallel fsdp(tp, mesh.get_group("dp"));
//
// A model that was made without memory for its parameters (nn/empty_weights.h) gets its values
// here, those that it would have had, a unit at a time, each cut before the next: no rank has the
// whole.
//
// Modules of ignored_modules (experts that each rank has others of, a frozen table) are left alone:
// not made equal, cut, gathered, rounded or reduced. Gradients of theirs are this rank's own, and
// so is what a state has of them. A checkpoint has one value for all: saving one is an Error on all
// ranks where such parameters differ between them, or their optimizer's state; of buffers it has
// those of the rank that saves, or rank 0's. Each rank can save state_dict() by itself.
//
// Checkpoints (nn/checkpoint.h) have its states as parts, which load into the plain model and its
// optimizer, too, and at any number of ranks; all ranks bring them together before one saves, as
// those of launch/ do by themselves:
//
//   std::vector<nn::Part> parts{{"model", fsdp.saved()}, {"optimizer", fsdp.saved(optimizer)}};
//   for (const nn::Part& part : parts) part.consolidate_state_dict();  // all ranks
//   if (group.rank() == 0) nn::save("run.safetensors", parts);
//   nn::load("run.safetensors", parts);                                // all ranks
//
// Or each rank saves its own part, and nothing is brought together (sharded_checkpoint.h):
//
//   nn::save_sharded("run.checkpoint", parts, group);                  // all ranks
//
// Steps are the same on all ranks, and so are the units that they run: a rank that calls another,
// or leaves out a backward, is an Error on all that names both. So are evaluations, by as many
// batches; where ranks have different numbers of them (an `exact` loader), hold what
// summon_full_parameters() returns meanwhile. A parameter that gets no gradient
// though others of its unit do is an Error by name. A unit that no rank uses costs nothing. Units
// are called as modules (operator() or call()), as their hooks are what gathers; a forward pre-hook
// that was there before the wrapper does not see parameters of its unit. Buffers are rank 0's after
// each synchronised backward, as DDP's. Parameters stay frozen or trained as they were: one that is
// thawed is an Error by name, and so is one that is frozen where others of its unit are not (whole
// units may be, for a while). When the last handle goes parameters have no values: take
// state_dict() before. Thread safety: as of Module.
#pragma once

#include <peal/comm/group/device_mesh.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/mixed_precision.h>
#include <peal/nn/parallel/sharded/shard_plan.h>
#include <peal/nn/parallel/sharded/sharded_state.h>
#include <peal/nn/parallel/sharded/unit_schedule.h>

#include <memory>
#include <string>
#include <vector>

namespace peal::nn {

class Optimizer;

struct CPUOffload {
  bool offload_params = false;  // and their gradients, and what the optimizer keeps
};

struct FSDPOptions {
  WrapPolicy wrap{};  // none: the model is one unit
  ScheduleOptions schedule{};
  // Paths of modules whose parameters and buffers, and those of modules below, are each rank's own.
  std::vector<std::string> ignored_modules{};
  bool broadcast_buffers = true;  // false: they stay each rank's own after the start
  // The types in which the model computes, and gradients and buffers are.
  MixedPrecision mixed_precision{};
  CPUOffload cpu_offload{};
  // Of the wrapper's group, replicas by shards (HYBRID_SHARD); none: one shard a rank.
  comm::DeviceMesh device_mesh{};
};

class FullyShardedDataParallel : public Module {
 public:
  // Collective. Values become rank 0's, and are then cut. Error, the same on all ranks, where
  // models or options differ; where parameters have gradients, are another wrapper's, or lie on
  // several devices.
  FullyShardedDataParallel(Module module, comm::ProcessGroup group,
                           const FSDPOptions& options = {});

  // This rank's part of each parameter, by its name: [elements], a run of the parameter's, which
  // may be none. For optimizers; their gradients are the averages. After them the parameters of
  // ignored_modules, as they are.
  NamedTensors local_parameters() const;

  // While one of these lives, backward adds gradients up without communication, in memory for all
  // of the model's; the next one outside averages their sum. May be nested.
  class NoSync;
  [[nodiscard]] NoSync no_sync();

  // Drops all gradients, of the model and of the pieces. What drops one side alone, an optimizer's
  // or a plain Module's zero_grad(), is carried over to the other when the next backward begins.
  // Error on all ranks, as of clip_grad_norm_(), where an exception has left a backward that had
  // begun to reduce.
  void zero_grad();
  // As nn::clip_grad_norm_() of all gradients of all ranks, each element once, but for those of
  // ignored_modules, which it neither counts nor scales. Collective. Returns
  // the norm before, the same on all ranks. Error where they are not averaged yet. A GradScaler
  // needs the group, and LARS, as LAMB, whole matrices.
  double clip_grad_norm_(double max_norm, double norm_type = 2.0);

  // Until what is returned goes, all parameters are there, on every rank; what was written to them
  // is then kept, each rank its own part: write the same on all. Collective; not in a forward or a
  // backward.
  [[nodiscard]] std::shared_ptr<void> summon_full_parameters();
  // All buffers become rank 0's now, but for those of ignored_modules; nothing without
  // broadcast_buffers. Collective.
  void sync_buffers();
  // The plain model's, by its keys, on every rank, in memory of its own. Collective: one unit after
  // the other is gathered.
  NamedTensors state_dict() const;
  // A plain model's. All ranks give the same. Collective; for a moment the model is whole.
  IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true);
  // The state of an optimizer of local_parameters(), as one of the plain model's named_parameters()
  // would have it, on every rank: it loads into that, and here at any number of ranks (PyTorch:
  // full_optim_state_dict). Collective. Error where the optimizer keeps other than whole numbers
  // and one element for each of a parameter's.
  NamedTensors optimizer_state_dict(const Optimizer& optimizer) const;
  // Takes such a state, the same on all ranks; each keeps its part. Error as of
  // Optimizer::load_state_dict(), and for a tensor of another shape than its parameter's.
  void load_optimizer_state_dict(Optimizer& optimizer, const NamedTensors& state) const;
  // Both as parts of a checkpoint; a Part of the wrapper itself is its saved(). REQUIRES: the
  // optimizer outlives what is returned.
  ShardedState saved() const;
  ShardedState saved(Optimizer& optimizer) const;

  // The units in their order, the model itself first: which parameters are whose, in elements.
  const std::vector<UnitPlan>& units() const;
  // What was done since the last forward of the model began, or of a unit outside of one, as a
  // value.
  const UnitActions& actions() const;
  // The plan's table, for people.
  std::string explain() const;
  // Of all ranks.
  const comm::ProcessGroup& group() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<void> hooks_;  // takes them off when the last handle goes
};

class FullyShardedDataParallel::NoSync {
 public:
  // no_sync() makes it.
  explicit NoSync(std::shared_ptr<State> state);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<State> state_;
  bool before_;
};

}  // namespace peal::nn
