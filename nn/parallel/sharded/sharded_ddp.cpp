// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>

#include <cmath>

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

Tensor ShardedDDP::clip_grad_norm_(double max_norm, double norm_type) {
  PEAL_CHECK(max_norm >= 0 && norm_type >= 1,
             "clip_grad_norm_: expected max_norm >= 0 and norm_type >= 1, got ", max_norm, " and ",
             norm_type);
  const NoGrad guard;
  // What is whole on all ranks counts once, as rank 0's. What a rank has of another's was never
  // averaged; the owner cannot tell by itself.
  std::vector<Tensor> own, whole;
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
  std::vector<Tensor> counted = own;
  if (group().rank() == 0) counted.insert(counted.end(), whole.begin(), whole.end());
  const bool largest = std::isinf(norm_type);
  const double here = norm_of(counted, norm_type);
  const Tensor both = Tensor::from(
      std::vector<double>{largest ? here : std::pow(here, norm_type), averaged ? 0.0 : 1.0}, {2},
      Device{});
  group()
      .all_reduce(both, largest ? comm::ReduceOp::max : comm::ReduceOp::sum,
                  "the norm of gradients")
      .wait();
  const std::vector<double> all = both.to_vector<double>();
  PEAL_CHECK(all[1] == 0,
             "[zero] clip_grad_norm_: the gradients are not averaged yet: the last backward was "
             "under no_sync(); run the one that averages them before");
  const double norm = largest ? all[0] : std::pow(all[0], 1 / norm_type);
  const double factor = max_norm / (norm + 1e-6);
  own.insert(own.end(), whole.begin(), whole.end());
  if (!(factor >= 1)) scale_all(own, factor);
  return Tensor::scalar(norm, Device{});
}

}  // namespace peal::nn
