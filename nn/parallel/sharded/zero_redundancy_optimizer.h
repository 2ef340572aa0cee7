// SPDX-License-Identifier: Apache-2.0
// ZeroRedundancyOptimizer: the state of an optimizer, shared out over the ranks (ZeRO's first
// stage: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", SC 2020; FairScale: OSS). Each rank steps the parameters that it owns (placement.h), has
// state and masters for those alone, and gives all ranks what they became. So N ranks need about an
// N-th of that memory each, and step with the same bits as the optimizer by itself.
//
//   nn::DistributedDataParallel ddp(net, group);
//   nn::ZeroRedundancyOptimizer<nn::AdamW> optimizer(group, ddp.named_parameters(),
//                                                    nn::AdamWOptions{.lr = 1e-3});
//
// It is such an optimizer, around any of them whose steps go parameter by parameter, your own too
// (so not LBFGS): groups, settings, schedules, clip_grad_norm_ and GradScaler are as ever, as each
// rank has all gradients. REQUIRES: they are the same on all ranks, as DDP makes them, or at least
// the owner's are right. So it does not go with local SGD (local_sgd.h, outer_step.h) over its
// ranks, where updates of all but the owner would be lost; over those among which gradients are
// averaged it does.
//
// Whole parameters have one owner each, which stays: a frozen one counts as one element then, so
// where large ones are to be thawed, make the optimizer after that, or add them then.
//
// Parts of tensor-parallel layers it refuses: FullyShardedDataParallel takes those.
//
// State. consolidate_state_dict(), on all ranks, brings it together on one; there state_dict() is
// that of the optimizer by itself, key for key and bit for bit, which goes into one process, DDP or
// any number of ranks, and back. On others, and once there was another step, it is an Error.
// Checkpoints of launch/ consolidate by themselves; who saves by hand does it before. In a sharded
// checkpoint (sharded_checkpoint.h) owners save theirs, and nothing is consolidated.
//
// All ranks step alike, with the same settings: where they differ all get an Error. A group of one
// does nothing of all this. Thread safety: as of Optimizer and of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/optim/lbfgs.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/sharded/placement.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {

// What it does with whichever optimizer that is given here.
class OptimizerShards {
 public:
  // Over the ranks of a group; who owns what is known from place() on.
  explicit OptimizerShards(comm::ProcessGroup group) : group_(std::move(group)) {}

  // Which parameters are whose; collective, where any are new. Error on all ranks, by name, where
  // they or the settings differ.
  void place(Optimizer& optimizer);
  // `local` steps what is this rank's, and all get what came of it.
  void step(Optimizer& optimizer, const std::function<void()>& local);
  // The state of all ranks, on rank `to`, where state_dict() then gives it; forget() lets it go.
  // Errors: parameters that joined since the last step, no such rank; and of state_dict(), that
  // nothing was consolidated since the last step.
  void consolidate(const Optimizer& optimizer, int to);
  void forget() { gathered_.clear(); }
  NamedTensors state_dict(const Optimizer& optimizer) const;
  // What this rank owns of it. Error where parameters joined since the last step.
  LocalState local_state(Optimizer& optimizer) const;

  // Who owns what, by the number of the parameter, and over which ranks.
  const Placement& placement() const { return placement_; }
  const comm::ProcessGroup& group() const { return group_; }
  // Of a parameter, and `everyone` (bucket_plan.h) for one that is not the optimizer's. It may
  // outlive this.
  std::function<int(const Tensor& parameter)> owner_of() const;
  // Whether owner_of() was called, by who reduces gradients to owners.
  bool owners_are_asked() const { return group_.world() > 1 && owners_->asked; }

 private:
  // Of those that are placed; the tensors hold the keys.
  struct Owners {
    std::unordered_map<const TensorBody*, std::pair<Tensor, int>> of;
    bool asked = false;
  };
  std::string describe(const Optimizer& optimizer, const Placement& placement) const;
  void plan(const Optimizer& optimizer);
  void send(const Optimizer& optimizer);
  std::uint64_t tag(const Optimizer& optimizer) const;

  comm::ProcessGroup group_;
  Placement placement_;
  std::shared_ptr<Owners> owners_ = std::make_shared<Owners>();
  // By parameter: it is trained, or was when it was placed or in a step since; and so it is sent.
  std::vector<bool> trained_, sent_;
  std::vector<Message> messages_;  // of these
  std::uint64_t steps_ = 0;
  std::vector<NamedTensors> gathered_;  // by parameter; empty where nothing is, or it is stale
};

template <std::derived_from<Optimizer> Inner>
class ZeroRedundancyOptimizer : public Inner {
  static_assert(!std::derived_from<Inner, LBFGS>,
                "LBFGS steps along one direction of all parameters, and cannot be shared out");

 public:
  // Collective. `args` make the optimizer: parameters and options (by the name of their type), or
  // groups. Error on all ranks, by name, where parameters or settings differ.
  template <class... Args>
  explicit ZeroRedundancyOptimizer(comm::ProcessGroup group, Args&&... args)
      : Inner(std::forward<Args>(args)...), shards_(std::move(group)) {
    shards_.place(*this);
  }

  using Inner::step;
  // Collective.
  void step() override {
    shards_.step(*this, [this] { Inner::step(); });
  }

  // Collective: rank `to` gets the whole state, on the CPU but for its own.
  void consolidate_state_dict(int to = 0) override { shards_.consolidate(*this, to); }
  // Of the whole. Error where it is not consolidated here, or there was a step since.
  NamedTensors state_dict() const override { return shards_.state_dict(*this); }
  // The whole state, the same on all ranks; each keeps its part.
  void load_state_dict(const NamedTensors& state) override {
    shards_.forget();
    shards_.place(*this);
    Inner::load_state_dict(state);
  }

  // With ShardedDDP.
  bool lacks_gradients() const override {
    return Inner::lacks_gradients() || shards_.owners_are_asked();
  }

  // What this rank owns, for a sharded checkpoint (sharded_checkpoint.h): nothing to consolidate.
  LocalState local_state() override { return shards_.local_state(*this); }

  // Who owns what, over which ranks, and what does it for any optimizer.
  const Placement& placement() const { return shards_.placement(); }
  const comm::ProcessGroup& group() const { return shards_.group(); }
  const OptimizerShards& shards() const { return shards_; }

 private:
  OptimizerShards shards_;
};

}  // namespace peal::nn
