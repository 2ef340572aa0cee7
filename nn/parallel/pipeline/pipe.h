// SPDX-License-Identifier: Apache-2.0
// Pipe: a Sequential cut over the ranks of a group, trained with micro-batches by any schedule of
// comm/pipeline (pipeline parallelism; PyTorch: PipelineStage and its schedules, FairScale: Pipe).
//
//   nn::Pipe pipe(group, model, {.kind = comm::pipeline::Kind::zb_v, .micro_batches = 8});
//   nn::AdamW optimizer(pipe.parameters());                    // of this rank's layers alone
//   const auto loss = [](const Tensor& y, const Tensor& t) { return sum(square(y - t)); };
//   ...
//   optimizer.zero_grad();
//   const double mean = pipe.step(x, target, loss);            // forward and backward
//   pipe.clip_grad_norm_(1.0);                                 // of all ranks' layers
//   optimizer.step();
//
// One divisor. The loss is a sum over the rows (or tokens) of a micro-batch, and step() divides by
// what the whole batch has, once: so gradients are those of one process, however the batch is cut,
// and of ragged micro-batches too (10 rows in 4: 3, 3, 2, 2). Gradients add up over several steps,
// as ever; who divides by what they all have gives that number to each. A GradScaler has the
// pipe's group, so that all ranks leave out a step that one cannot take, and scales in the loss.
//
// What differs from one process: layers that look at a whole batch see micro-batches (BatchNorm;
// its running statistics can be those of the whole batch: deferred_batch_norm.h), and dropout draws
// for each of them. What a layer draws is a function of its place in the model,
// the micro-batch and the random numbers' state when the step began: so it does not depend on the
// cut, the schedule or the ranks, where these came with one state (manual_seed() of the same seed),
// and they leave a step with one.
//
// A parameter that layers of several ranks share (tied: an embedding, and the last layer's weight)
// is one on each of them. All begin with that of the first of these ranks, and after each step have
// the gradient of all: so they stay equal, with optimizers that step them alike. A step costs one
// message to that rank and one back. A buffer that ranks share is an Error.
//
// Every rank makes the whole model; those of its layers that others have can be let go, and are not
// trained here: run the pipe, not the model. Layers keep
// their names ("5.weight" is the weight of layer 5 on whichever rank), so states of all ranks
// together are that of the model. A checkpoint (nn/checkpoint.h) has them as parts, and loads into
// the plain model and its optimizer, and into a pipe of any ranks, schedule and balance. In a
// sharded one (sharded/sharded_checkpoint.h) each rank saves its own:
//
//   std::vector<nn::Part> parts{{"model", pipe.saved()}, {"optimizer", pipe.saved(optimizer)}};
//   for (const nn::Part& part : parts) part.consolidate_state_dict();  // all ranks
//   if (group.rank() == 0) nn::save("run.safetensors", parts);
//   nn::load("run.safetensors", parts);                                // all ranks
//   nn::save_sharded("run.checkpoint", parts, group);                  // or so: all ranks
//
// Backward in two (ZB-H1, ZB-V) walks a part's graph twice: once to its input alone, and once to
// the weights, where what lies between is computed again. The second walk is the only one that
// hooks of parameters see.
//
// Shapes of activations travel with them, and may differ by micro-batch: a `recv` of the schedule
// asks for the shape, and the elements are received where they are needed, by a tag of their own.
// Between parts goes one tensor, of a floating type, on the CPU; and what layers stash for later
// ones (skippable.h), from rank to rank past those between, as the schedule has it. Between nodes
// messages move while ranks compute; within a node when ranks look after them, which they do after
// each layer.
//
// Checkpointing (autograd/checkpoint.h): of a micro-batch that is checkpointed a part keeps what
// goes in and what comes out, and computes it anew when its gradient comes: with the same random
// numbers, and without counting it again in running statistics. Of a backward in two, the first
// half then does all, and the second nothing.
//
// Several pipelines on shares of a batch (data parallel besides) average their gradients once a
// step; DistributedDataParallel would do so at every micro-batch:
//
//   const comm::DeviceMesh mesh(group, {2, 4}, {"dp", "pp"});
//   nn::Pipe pipe(mesh.get_group("pp"), model, {.micro_batches = 8});
//   ...
//   pipe.step(x, target, loss);                                // of this pipeline's share
//   for (const Tensor& p : pipe.local().parameters()) {
//     mesh.get_group("dp").all_reduce(p.grad().view(), comm::ReduceOp::avg).wait();
//   }
//
// So do those of a mesh with tensor-parallel layers (tensor/tensor_parallel.h), which are cut
// before the pipe is made, over the other ranks of the mesh: norms and states are the plain
// model's, too.
//
// Thread safety: one thread. All ranks call step() alike; what fails on one rank ends the group
// with its message.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/pipeline/pipeline.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/parallel/pipeline/balance.h>
#include <peal/nn/parallel/pipeline/balance_by_time.h>
#include <peal/nn/parallel/pipeline/deferred_batch_norm.h>
#include <peal/nn/parallel/pipeline/skippable.h>
#include <peal/nn/parallel/sharded/sharded_state.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

class Optimizer;
struct Parameters;

// Of which micro-batches nothing is kept between a part's layers (FairScale: checkpoint).
// `except_last`: of all but the last, which is then computed once.
enum class CheckpointMode : std::uint8_t { never, except_last, always };

struct PipeOptions {
  comm::pipeline::Kind kind = comm::pipeline::Kind::one_f_one_b;
  int micro_batches = 1;
  int chunks = 0;  // parts of a rank; 0: as many as the kind has at least
  // Layers of each part, in order; empty: balance_by_count().
  std::vector<int> balance{};
  CheckpointMode checkpoint = CheckpointMode::never;
  // convert_deferred_batch_norm() of the model, whose running statistics then move once a call.
  bool deferred_batch_norm = false;
  bool keep_outputs = false;  // of step() and evaluate(), for outputs()
};

class Pipe {
 public:
  // Of a part's output and the rows of the target that belong to it: the sum, one element.
  using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;

  // Collective: Error on all ranks where models or options differ.
  Pipe(comm::ProcessGroup group, Sequential model, const PipeOptions& options);

  // Forward and backward of a batch. Collective. x and target have as many rows on all ranks; only
  // the first part reads those of x, only the last those of target. Fewer rows than micro-batches
  // are a micro-batch each. Returns the loss over the divisor (0: the rows of x), on all ranks.
  // Error under NoGrad.
  double step(const Tensor& x, const Tensor& target, const Loss& loss, double divisor = 0);
  // The loss alone, without gradients; layers train or evaluate as they are set. Collective.
  double evaluate(const Tensor& x, const Tensor& target, const Loss& loss, double divisor = 0);

  // The last part's output of the batch, all micro-batches as one tensor, without gradients; on the
  // rank that has that part, and with `broadcast` on all. Undefined elsewhere. Collective.
  Tensor forward(const Tensor& x, bool broadcast = false);
  // With PipeOptions::keep_outputs, the same, [batch, ...], of the last step() or evaluate(),
  // without its graph. Collective where it is broadcast; on all ranks alike. Error without it.
  Tensor outputs(bool broadcast = false) const;

  // As nn::clip_grad_norm_() of the gradients of all ranks' layers. Collective. Returns the norm
  // before, the same on all ranks.
  double clip_grad_norm_(double max_norm, double norm_type = 2.0);

  // Of all ranks' layers, on all; and a whole one, the same on all, of which each takes its own.
  // Collective.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);
  // Both as parts of a checkpoint. REQUIRES: the pipe outlives them, and so does the optimizer, one
  // of parameters() with the same groups and settings on all ranks, whose steps go parameter by
  // parameter.
  ShardedState saved();
  ShardedState saved(Optimizer& optimizer);

  // This rank's layers, by their names in the model. nn::clip_grad_norm_() of their parameters
  // would bound each rank's by a norm of its own.
  Sequential local() const { return local_; }
  // What an optimizer of this rank trains, by those names: of a rank whose layers have none, an
  // optimizer of nothing, so that all ranks run the same lines, and saved() has one on each.
  Parameters parameters() const;
  // Stages, micro-batches and parts, as its schedule has them.
  const comm::pipeline::Problem& problem() const { return problem_; }
  // The most micro-batches, times parts, that were kept at a time in the last step.
  int stash() const { return stash_; }

 private:
  friend class PipeStep;
  // Of so many micro-batches, this rank's.
  struct Plan {
    comm::pipeline::Problem problem;
    comm::pipeline::Program program;
  };
  struct Layer {
    int place;  // in the model
    Module module;
  };
  // A skip between two parts; its messages are numbered behind those of activations (pipe_step.h).
  struct Line {
    std::string name;
    int from, to, number;
  };
  // A parameter that layers of several ranks share: its name on this one, the first in the model,
  // and all.
  struct Tie {
    Tensor parameter;
    std::string name, first;
    std::vector<int> ranks;
    std::vector<std::string> names;
    bool has(std::string_view key) const;
    bool is_home(int rank) const;  // it counts there
  };
  struct Given;
  // pipe_ties.cpp. add_ties() gives what ranks compare.
  std::string add_ties(const std::vector<std::pair<std::string, Module>>& layers);
  Tensor met(const Tie& tie, const Tensor& mine,
             const std::function<Tensor(const Tensor&, const Tensor&)>& f) const;
  void make_ties_equal() const;
  Tensors set_ties_aside() const;
  void add_up_ties(const Tensors& before) const;
  void add_skips(const std::vector<SkipRoute>& routes, const std::vector<int>& balance);
  const Plan& plan_of(int micro_batches);
  bool checkpoints(int micro_batch, int of) const;
  // The loss, where the last part is.
  double run(const Given& given);
  double run_with_loss(const Given& given);
  Tensor shared_outputs(bool broadcast) const;
  // pipe_state.cpp
  int place_of(std::string_view key) const;
  bool lies_elsewhere(std::string_view key) const;
  NamedTensors own_of(const NamedTensors& whole) const;
  const Tie* tie_of(std::string_view key, std::string Tie::*name) const;
  NamedTensors gathered(const NamedTensors& mine, std::optional<int> to) const;
  std::pair<NamedTensors, NamedTensors> state_of(const Optimizer& optimizer) const;
  void load_state_of(Optimizer& optimizer, const NamedTensors& state) const;

  comm::ProcessGroup group_;
  PipeOptions options_;
  comm::pipeline::Problem problem_;
  std::vector<Line> skips_;
  std::vector<Tie> ties_;
  std::map<int, Plan> plans_;  // by micro-batches, as they were needed
  Sequential local_;
  std::vector<std::vector<Layer>> parts_;  // layers of each; empty where another rank has it
  int layers_ = 0;                         // of the model
  std::vector<std::string> names_;         // of those, and which rank has each
  std::vector<int> rank_of_;
  Tensor outputs_;          // of the last call that kept them
  std::int64_t calls_ = 0;  // of step() and evaluate()
  int stash_ = 0;
};

}  // namespace peal::nn
