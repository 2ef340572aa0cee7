// SPDX-License-Identifier: Apache-2.0
// PreparedOptimizer and PreparedScheduler: what Accelerator::prepare() makes of an optimizer and of
// a learning-rate scheduler (Accelerate: AcceleratedOptimizer, AcceleratedScheduler). Both are
// called after each batch, and do something where that ends a step:
//
//   optimizer.step(); scheduler.step(); optimizer.zero_grad();
//
// With fp16 a step whose gradients are not finite is left out, on all ranks alike, and then the
// scheduler does not move. With "zero1" and "zero2" each rank steps its own parameters.
// REQUIRES: what was prepared, and the Accelerator, outlive them. Thread safety: as of Optimizer.
#pragma once

#include <peal/launch/training/accelerator/gradient_state.h>
#include <peal/launch/training/accelerator/prepared_model.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

struct OptimizerBody {
  nn::Optimizer& inner;
  std::optional<nn::OptimizerShards> shards;  // whose parameters are whose
  std::shared_ptr<ModelBody> pieces_of;       // a model of FullyShardedDataParallel
  std::weak_ptr<GradientState> state;
  std::vector<std::weak_ptr<ModelBody>> trains = {};
  bool unscaled = false;  // in this step
  bool skipped = false;   // the last step
};

class PreparedOptimizer {
 public:
  // Accelerator::prepare() makes it.
  explicit PreparedOptimizer(std::shared_ptr<OptimizerBody> body) : body_(std::move(body)) {}

  // Nothing within a step. Collective, as steps are.
  void step();
  // Nothing within a step.
  void zero_grad();
  // Whether the last step was left out (Accelerate: step_was_skipped).
  bool step_was_skipped() const { return body_->skipped; }

  // Those of what was prepared: the rate of a group, and of all groups; the parameters it steps.
  double lr(std::size_t group = 0) const { return body_->inner.lr(group); }
  void set_lr(double lr) { body_->inner.set_lr(lr); }
  const std::vector<Tensor>& parameters() const { return body_->inner.parameters(); }
  // What was prepared.
  nn::Optimizer& unwrap() const { return body_->inner; }

  // The plain optimizer's of the plain model. With "zero1" and "zero2" after
  // consolidate_state_dict(), which is collective; with "fsdp" collective itself.
  NamedTensors state_dict() const;
  void consolidate_state_dict(int to = 0);
  // All ranks give the same.
  void load_state_dict(const NamedTensors& state);
  nn::LocalState local_state();
  // As a part of a checkpoint. REQUIRES: this outlives it.
  nn::Part part(std::string name);

 private:
  std::shared_ptr<OptimizerBody> body_;
};

// The gradients as they are, not times what losses were multiplied by; once a step.
void unscale(GradientState& state, OptimizerBody& optimizer);

class PreparedScheduler {
 public:
  // `steps`: how many a step of the optimizer is.
  PreparedScheduler(nn::LRScheduler& inner, std::shared_ptr<GradientState> state,
                    std::int64_t steps)
      : inner_(&inner), state_(std::move(state)), steps_(steps) {}

  // Nothing within a step, nor where an optimizer left it out. Else by how many the accelerator's
  // options say: as many as there are ranks, as Accelerate has it, since a schedule for the batches
  // of one rank is through with them in an epoch then. A schedule that ends (OneCycleLR) stays at
  // its last step: several at once may be more than it has left.
  void step();
  // The rates that the optimizer has, of each of its groups.
  std::vector<double> get_last_lr() const { return inner_->get_last_lr(); }
  std::int64_t steps() const { return inner_->steps(); }
  nn::LRScheduler& unwrap() const { return *inner_; }
  NamedTensors state_dict() const { return inner_->state_dict(); }
  void load_state_dict(const NamedTensors& state) { inner_->load_state_dict(state); }
  // Whether there is another of these than this one.
  bool is_held() const { return alike_.use_count() > 1; }

 private:
  std::shared_ptr<void> alike_ = std::make_shared<int>();
  nn::LRScheduler* inner_;
  std::shared_ptr<GradientState> state_;
  std::int64_t steps_;
};

}  // namespace peal::launch
