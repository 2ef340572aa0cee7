// SPDX-License-Identifier: Apache-2.0
// ShardedDDP: data-parallel training in which each gradient is averaged at the one rank that steps
// its parameter, and freed on the others (ZeRO's second stage; FairScale has this name). So beside
// optimizer state a rank has an N-th of the gradients, and buckets of others only while they are
// sent.
//
//   nn::ZeroRedundancyOptimizer<nn::AdamW> optimizer(group, net.named_parameters(), options);
//   nn::ShardedDDP ddp(net, optimizer);
//   nll_loss(ddp(x), y).backward();   // each rank has the gradients of its own parameters
//   ddp.clip_grad_norm_(1.0);         // of all of them
//   optimizer.step();
//
// All else is DistributedDataParallel, whose reducer this is with another plan: a bucket holds
// gradients of one owner, and is reduced to that rank. Parameters that are not the optimizer's have
// gradients on all ranks. Of no_sync() a rank has all gradients until they are averaged.
//
// What goes by gradients of all parameters asks all ranks: clip_grad_norm_ here, and a GradScaler
// that has the group. After a step zero_grad() comes before the next backward, or backwards under
// no_sync() before the one that communicates: the owner alone keeps what a step has left, and on
// top of that nothing can be averaged, which is an Error. So is what needs whole gradients
// elsewhere: communication hooks (and reduce_dtype), captured steps, and ranks without a batch
// (Join).
//
// Thread safety: as of DistributedDataParallel.
#pragma once

#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>

#include <utility>
#include <vector>

namespace peal::nn {

class ShardedDDP : public DistributedDataParallel {
 public:
  // Collective. Owners are those of the optimizer; the group is its, too.
  template <class Inner>
  ShardedDDP(Module module, const ZeroRedundancyOptimizer<Inner>& optimizer,
             const DDPOptions& options = {})
      : ShardedDDP(std::move(module), optimizer.shards(), options) {}
  ShardedDDP(Module module, const OptimizerShards& shards, DDPOptions options = {});

  // As nn::clip_grad_norm_ over the gradients of all ranks, with the same result on each: the norm
  // before, f64, on the CPU. Collective. Error, on all, for gradients that are not averaged yet
  // (no_sync).
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0);
};

}  // namespace peal::nn
