// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>

#include <utility>

namespace peal::nn {
namespace {

DDPOptions with_owners(DDPOptions options, const OptimizerShards& shards) {
  PEAL_CHECK(!options.owner_of,
             "[zero] ShardedDDP: owners are the optimizer's; leave owner_of out");
  options.owner_of = shards.owner_of();
  return options;
}

}  // namespace

ShardedDDP::ShardedDDP(Module module, const OptimizerShards& shards, DDPOptions options)
    : DistributedDataParallel(std::move(module), shards.group(),
                              with_owners(std::move(options), shards)) {}

// What is whole on all ranks counts once. What a rank has of another's was never averaged; the
// owner cannot tell by itself.
Tensor ShardedDDP::clip_grad_norm_(double max_norm, double norm_type) {
  check_clipping(max_norm, norm_type);
  Tensors own, whole;
  bool averaged = true;
  for (const Bucket& bucket : reducer().buckets()) {
    const bool shared = bucket.owner == everyone;
    for (const auto& entry : bucket.entries) {
      const Tensor grad = reducer().parameter(entry.parameter).grad();
      if (!grad.defined() || grad.numel() == 0) continue;
      averaged = averaged && (shared || bucket.owner == group().rank());
      (shared ? whole : own).push_back(grad);
    }
  }
  PEAL_CHECK(!any_rank(group(), {!averaged}, "whether gradients are averaged")[0],
             "[zero] clip_grad_norm_: the gradients are not averaged yet: the last backward was "
             "under no_sync(); run the one that averages them before");
  const double norm =
      clip_over_ranks(own, group(), max_norm, norm_type, "the norm of gradients", whole);
  return Tensor::scalar(norm, Device{});
}

}  // namespace peal::nn
