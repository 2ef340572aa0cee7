// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism (PyTorch: torch.distributed.tensor.parallel.parallelize_module; Megatron-LM):
// layers of a model are cut over the ranks of a group by a plan of names, and each rank computes
// with its part of them, on the same batch:
//
//   const comm::DeviceMesh mesh(job.group(), {2, 4}, {"dp", "tp"});
//   nn::GPT gpt(settings);
//   nn::TensorParallel tp = nn::parallelize_module(gpt, mesh.get_group("tp"), {
//       {"transformer.wte", nn::RowwiseParallel{}},
//       {"transformer.h.*.attn.c_attn", nn::ColwiseParallel{.parts = 3, .heads = settings.heads}},
//       {"transformer.h.*.attn.c_proj", nn::RowwiseParallel{}},
//       {"transformer.h.*.mlp.c_fc", nn::ColwiseParallel{}},
//       {"transformer.h.*.mlp.c_proj", nn::RowwiseParallel{}},
//       {"lm_head", nn::ColwiseParallel{.gather_output = true}}});  // wte's weight: both are cut
//   nn::DistributedDataParallel ddp(tp, mesh.get_group("dp"));
//   nn::AdamW optimizer(tp.named_parameters(), {.lr = 1e-3});
//   cross_entropy(ddp(x), y).backward();    // the same x on the ranks of "tp"
//   tp.clip_grad_norm_(1.0);
//   optimizer.step();
//
// P ranks are equal to one, but for the rounding of sums. A plan names modules by path, where `*`
// stands for any one name. Linear becomes ColumnParallelLinear or RowParallelLinear, and Embedding,
// by RowwiseParallel, VocabParallelEmbedding (layers.h), in their places; handles of the model
// stand for the new ones, and keys stay. What is not named is whole, and the same on all ranks. The
// ranks of the group train on the same batches: give samplers the "dp" place. A forward of one's
// own takes sizes from what its cut layers give, and not from its input: there are this rank's
// heads alone (`q.view({q.size(0), q.size(1), -1, width})`), and with sequence_parallel all of the
// sequence, of which the input is a part. Optimizers are made after the cut: one from before has
// the whole tensors, which nothing computes with any more, and they would stay as they are without
// a word. A plan may be of one block of the model, and the next call's of others: what is cut stays
// as it is. A model that was made without memory for its parameters (nn/empty_weights.h) gets its
// values here, what is cut a layer at a time: no rank that came without them has the whole.
//
// What is whole stays the same as each rank computes the same bits of it, which is not checked. On
// devices attention in f16 and bf16 does not (docs/decisions/0061): where a plan leaves it whole,
// set context().deterministic on all ranks.
//
// Sequence parallelism (Korthikanti et al., 2022): between the regions of cut layers each rank has
// a part of the sequence. ColwiseParallel and RowwiseParallel around such regions have
// sequence_parallel, norms and dropouts in them are SequenceParallel, and what comes before is cut
// by PrepareModuleOutput:
//
//       {"transformer.drop", nn::PrepareModuleOutput{}},
//       {"transformer.h.*.ln_1", nn::SequenceParallel{}}, ...
//       {"transformer.ln_f", nn::SequenceParallel{}}
//
// The ranks divide the sequence, so that text is not made of it token by token: that does a plain
// GPT, or one cut without sequences, that loads state_dict().
//
// Dropout drops what it does in one process, where the ranks' generators are of one seed:
// manual_seed() the same within "tp", and another for each place of "dp", as by
// manual_seed(seed + mesh.get_local_rank("dp")), once the model is built. It is not checked: with a
// seed for each rank of the job what is to be alike drifts apart. A Dropout of the model that works
// on parts of the sequence, or of the features, is given SequenceParallel, which says along what it
// is cut; code of one's own has ParallelDropout. Attention's own probabilities (attn_pdrop of GPT)
// need neither.
//
// Data parallel over the other dimension of the mesh is DistributedDataParallel's, as above, or
// FullyShardedDataParallel's (sharded/fsdp.h), whose norm and states are then to be taken; and a
// Pipe may have cut layers. Over ranks that have other parts all refuse, and so does a
// ZeroRedundancyOptimizer.
//
// Optimizers are given named_parameters(), of which cut ones are this rank's parts. Those that look
// at several elements together (Muon, Adafactor, LAMB, LARS, LBFGS) refuse them, and so do
// nn::clip_grad_norm_ and a GradScaler without the group. A checkpoint has saved() of model and
// optimizer as parts, as of FSDP (sharded/fsdp.h), which load into the plain ones, and at any
// number of ranks. A handle of the model itself, or DDP's, has this rank's parts alone, and to save
// one is an Error. Thread safety: as of Module.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/sharded/sharded_state.h>
#include <peal/nn/parallel/tensor/layers.h>
#include <peal/nn/parallel/tensor/parallel_dropout.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace peal::nn {

class Optimizer;

// Of a module that is run on a part of the sequence: the ranks' gradients of its parameters add up;
// a Dropout becomes a ParallelDropout. Not of one with named or cut modules below it: name those
// one by one.
struct SequenceParallel {
  // Along which what a Dropout gets is cut: the sequence; -1: features, between column and row.
  int sequence_dim = 1;
};
// The module's output, the same on all ranks, is cut along that dimension, which is the sequence's.
struct PrepareModuleOutput {
  int shard_dim = 1;
};

using ParallelStyle =
    std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleOutput>;
using TensorParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

// A handle to a model with tensor-parallel layers over one group. Module's own parameters() and
// named_parameters() are this rank's.
class TensorParallel : public Module {
 public:
  // Of a model that was made of such layers. Collective: what is whole becomes rank 0's. Error, the
  // same on all ranks, where models differ. parallelize_module() calls it.
  TensorParallel(Module module, comm::ProcessGroup group);

  // As nn::clip_grad_norm_() of the whole model: cut gradients of all ranks, and others once.
  // Collective. Returns the norm before, the same on all ranks.
  double clip_grad_norm_(double max_norm, double norm_type = 2.0);

  // The plain model's, by its keys, on every rank, in memory of its own. Collective.
  NamedTensors state_dict() const;
  // A plain model's, of which each rank takes its parts; the same on all ranks. Error for a shape
  // that is not the plain model's.
  IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true);
  // The state of an optimizer of named_parameters(), as one of the plain model's would have it.
  // Collective. Error where it keeps other than numbers and tensors of a parameter's shape.
  NamedTensors optimizer_state_dict(const Optimizer& optimizer) const;
  void load_optimizer_state_dict(Optimizer& optimizer, const NamedTensors& state) const;
  // Both as parts of a checkpoint. REQUIRES: the optimizer outlives what is returned.
  ShardedState saved() const;
  ShardedState saved(Optimizer& optimizer) const;

  // How a parameter is cut; none for one that is whole.
  std::optional<Cut> cut_of(std::string_view parameter) const;
  // The ranks over which it is cut.
  const comm::ProcessGroup& group() const { return group_; }

 private:
  // On that rank, in host memory, a tensor at a time, and nothing on others; on all where none is
  // given.
  NamedTensors gathered(std::optional<int> to) const;
  NamedTensors gathered(const Optimizer& optimizer, std::optional<int> to) const;

  comm::ProcessGroup group_;
};

// Collective. Values become rank 0's, and layers are cut by the plan. Error, the same on all ranks,
// and nothing is changed, where models or plans differ; for a path of no module, one that two
// entries name, and a module that its style does not cut (a class derived from Linear, one with
// hooks), or that lies below a SequenceParallel one; where sizes or heads do not divide among the
// ranks; and for a tied weight of which only some places are cut, or in different ways.
TensorParallel parallelize_module(Module module, const comm::ProcessGroup& group,
                                  const TensorParallelPlan& plan);

}  // namespace peal::nn
