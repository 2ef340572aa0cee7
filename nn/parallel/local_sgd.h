// SPDX-License-Identifier: Apache-2.0
// Post-local SGD (Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR
// 2020): after a number of steps gradients are averaged among few ranks alone (those of a node, or
// none), and every few steps the parameters of all are.
//
//   const auto node = group.split(job.node());
//   nn::PostLocalSGDState state(group, node, {.start_localSGD_iter = 100});
//   ddp.register_comm_hook(nn::post_localSGD_hook(state));
//   nn::PeriodicModelAverager averager(group, {.period = 4, .warmup_steps = 100});
//   ...; optimizer.step(); averager.average_parameters(ddp.parameters());
//
// Between two averages replicas differ; buffers stay rank 0's. A run that is to go on where it
// stopped saves both objects. Samples cannot be counted (DistributedDataParallel::backward(loss,
// samples)) while gradients are averaged over a part of the ranks. Names are PyTorch's. Thread
// safety: as of hooks.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/parallel/comm_hook.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace peal::nn {

struct PostLocalSGDOptions {
  std::int64_t start_localSGD_iter = 100;     // steps that are averaged over all ranks
  bool post_local_gradient_allreduce = true;  // after them over `subgroup`; false: not at all
};

class PostLocalSGDState {
 public:
  // `subgroup` is a part of `group` that has this rank, or empty: then nothing is sent after the
  // start.
  PostLocalSGDState(comm::ProcessGroup group, comm::ProcessGroup subgroup,
                    const PostLocalSGDOptions& options = {});
  std::int64_t step() const;  // that comes
  // "step" (i64).
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  friend CommHook post_localSGD_hook(const PostLocalSGDState& state);
  struct Body;
  std::shared_ptr<Body> body_;
};

// Of one wrapper: a call for another, while that lives, is an Error. It shares the state with that
// object. Its first call is an Error on all ranks where their options or steps differ; and so is,
// where each rank has gradients of its own, the third such step whose parameters one rank gives to
// all (ZeroRedundancyOptimizer).
CommHook post_localSGD_hook(const PostLocalSGDState& state);

struct PeriodicModelAveragerOptions {
  std::int64_t period = 4;
  std::int64_t warmup_steps = 0;  // steps before the first average
};

class PeriodicModelAverager {
 public:
  // Error: a period below 1 step, negative warmup_steps.
  explicit PeriodicModelAverager(comm::ProcessGroup group,
                                 const PeriodicModelAveragerOptions& options = {});
  // After each step of the optimizer. Collective, where it averages: in step warmup_steps, counted
  // from 0, and every `period` steps from there; and in its first call (of this object, or with a
  // loaded state), in which an Error tells all ranks where their options or steps differ. The
  // parameters have the same shapes on all ranks, and become the means in place.
  void average_parameters(const std::vector<Tensor>& parameters);
  // Steps so far.
  std::int64_t step() const { return step_; }
  // "step" (i64).
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  comm::ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
  std::int64_t step_ = 0;
  bool agreed_ = false;  // all ranks have these options, and are in this step
};

}  // namespace peal::nn
